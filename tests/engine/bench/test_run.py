"""The benchmark's arithmetic, with two generators that take exactly as long as they are told."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.bench import reference as reference_module
from engine.bench import run
from engine.bench.workloads import BATCH, PREFILL, SINGLE
from engine.config import EngineConfig
from tests.fakes.engine import model_info


class Clock:
    """time.perf_counter of the benchmark."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


class Timed:
    """Computes nothing; a run of `n` tokens takes n / speed(workload size)."""

    def __init__(self, clock: Clock, speeds: dict[int, list[float]]) -> None:
        self._clock = clock
        self._speeds = {size: list(values) for size, values in speeds.items()}
        self.seen: list[tuple[int, int]] = []

    def generate(self, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
        warms_up = max(lengths) <= run._WARM_UP_TOKENS and max(lengths) > 1
        self.seen.append((len(prompts), sum(lengths)))
        if not warms_up:
            counted = sum(lengths) if lengths[0] > 1 else sum(map(len, prompts))
            self._clock.now_s += counted / self._speeds[len(prompts)].pop(0)
        return [[0] * length for length in lengths]


class TimedLLM(Timed):
    """Stands for a loaded engine."""

    config: EngineConfig | None = None
    info = replace(model_info(), dtype="bfloat16")

    def __enter__(self) -> "TimedLLM":
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _three_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the real benchmark repeats."""
    goals = [replace(goal, workload=replace(goal.workload, repetitions=3)) for goal in run.GOALS]
    workloads = {name: replace(workload, repetitions=3) for name, workload in run.WORKLOADS.items()}
    monkeypatch.setattr(run, "GOALS", tuple(goals))
    monkeypatch.setattr(run, "WORKLOADS", workloads)


Measure = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measure:
    """Run a workload with these speeds in tokens per second; exit code and JSON."""

    def measure_one(
        name: str, ours: dict[int, list[float]], theirs: dict[int, list[float]] | None = None
    ) -> tuple[int, dict[str, Any]]:
        clock = Clock()
        llm = TimedLLM(clock, ours)

        def load(config: EngineConfig) -> TimedLLM:
            llm.config = config
            return llm

        monkeypatch.setattr(run, "time", clock)
        monkeypatch.setattr(run, "LLM", load)
        monkeypatch.setattr(run, "open_weights", lambda _path: NoWeights())
        other = Timed(clock, theirs or {})
        monkeypatch.setattr(reference_module, "TransformersReference", lambda _weights, _dtype: other)
        path = tmp_path / "figures.json"
        code = run.bench(name, EngineConfig(model="m.gguf"), path)
        assert llm.config is not None
        assert not llm.config.prefix_caching, "a prefix hit is no computation"
        return code, json.loads(path.read_text())

    return measure_one


class NoWeights:
    def close(self) -> None:
        pass


def test_a_workload_alone_gives_its_median(measure: Measure, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = measure("single", {1: [30.0, 50.0, 40.0]})
    assert code == 0
    (row,) = said["results"]
    assert row["workload"] == "single"
    assert row["tokens_per_s"] == pytest.approx(40.0)
    assert row["runs"] == pytest.approx([30.0, 50.0, 40.0])
    assert "one stream: 40.0 tok/s (runs 30.0, 50.0, 40.0)" in capsys.readouterr().out


def test_a_prefill_counts_its_prompts(measure: Measure) -> None:
    """The warm-up of one token takes its time as well, and is not counted."""
    _, said = measure("prefill", {16: [1.0, 500.0, 600.0, 700.0]})
    assert said["results"][0]["runs"] == pytest.approx([500.0, 600.0, 700.0])
    assert PREFILL.new_tokens == 1


def test_the_hardware_is_named(measure: Measure) -> None:
    _, said = measure("single", {1: [30.0] * 3})
    assert said["model"] == TimedLLM.info.name
    assert {"processor", "device", "dtype", "torch", "python", "load_average"} <= said["hardware"].keys()


@pytest.mark.parametrize(
    ("ours", "theirs", "code", "reached", "valid"),
    [
        ((40, 340), (24, 210), 0, [True, True], [True, True]),
        ((31.2, 252), (24, 210), 0, [True, True], [True, True]),
        ((31.1, 340), (24, 210), 1, [False, True], [True, True]),
        ((40, 251), (24, 210), 1, [True, False], [True, True]),
        ((40, 340), (19.1, 210), 1, [True, True], [False, True]),
        ((40, 340), (24, 167), 1, [True, True], [True, False]),
        ((40, 340), (19.2, 168), 0, [True, True], [True, True]),
    ],
    ids=["fast", "just", "slow-single", "slow-batch", "busy-single", "busy-batch", "valid-floor"],
)
def test_the_comparison_is_red_or_green(
    measure: Measure, ours: Any, theirs: Any, code: int, reached: list[bool], valid: list[bool]
) -> None:
    """At least 1.3 times one stream and 1.2 times a batch; void below 80 % of 24 and 210 tok/s."""
    # A hair above, so that exact borders do not hang on floating point.
    by_size = [{1: [pair[0] * 1.00001] * 3, 16: [pair[1] * 1.00001] * 3} for pair in (ours, theirs)]
    by_size[0] = {size: [speed * 1.00001 for speed in speeds] for size, speeds in by_size[0].items()}
    found, said = measure("cpu", *by_size)
    assert found == code
    assert [row["reached"] for row in said["results"]] == reached
    assert [row["reference_valid"] for row in said["results"]] == valid
    assert [row["workload"] for row in said["results"]] == ["single", "batch"]


def test_the_ratio_is_that_of_neighbours_in_time(measure: Measure) -> None:
    """The machine halves its speed for the last two runs of both: the ratio does not notice."""
    ours = {1: [60.0, 30.0, 30.0], 16: [600.0, 300.0, 300.0]}
    theirs = {1: [40.0, 20.0, 20.0], 16: [400.0, 200.0, 200.0]}
    _, said = measure("cpu", ours, theirs)
    assert [row["ratio"] for row in said["results"]] == pytest.approx([1.5, 1.5])


def test_both_sides_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(run, "time", clock)
    llm, other = (TimedLLM(clock, {1: [50.0] * 3, 16: [500.0] * 3}) for _ in range(2))
    for goal in run.GOALS:
        run._compare_goal(llm, other, goal)  # type: ignore[arg-type]
    assert llm.seen == other.seen
    warm_up = run._WARM_UP_TOKENS
    single, batch = SINGLE.new_tokens, 16 * BATCH.new_tokens
    assert llm.seen == [(1, warm_up), *[(1, single)] * 3, (16, 16 * warm_up), *[(16, batch)] * 3]
