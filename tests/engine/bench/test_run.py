"""The benchmark's arithmetic, with two generators that take exactly as long as they are told."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.bench import reference as reference_module
from engine.bench import run
from engine.bench.workloads import BATCH, PREFILL, SINGLE, SLOTS
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
            counted = sum(lengths) if max(lengths) > 1 else sum(map(len, prompts))
            self._clock.now_s += counted / self._speeds[len(prompts)].pop(0)
        return [[0] * length for length in lengths]


class TimedLLM(Timed):
    """Stands for a loaded engine, and for transformers."""

    info = replace(model_info(), dtype="bfloat16")

    def __init__(self, clock: Clock, speeds: dict[int, list[float]]) -> None:
        super().__init__(clock, speeds)
        self.slots: list[int] = []

    def continuous(self, num_slots: int) -> "TimedLLM":
        assert num_slots == 8
        return self

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
            assert not config.prefix_caching, "a prefix hit is no computation"
            llm.slots.append(config.max_num_seqs)
            return llm

        monkeypatch.setattr(run, "time", clock)
        monkeypatch.setattr(run, "LLM", load)
        monkeypatch.setattr(run, "open_weights", lambda _path: NoWeights())
        other = TimedLLM(clock, theirs or {})
        monkeypatch.setattr(reference_module, "TransformersReference", lambda _weights, _dtype: other)
        path = tmp_path / "figures.json"
        code = run.bench(name, EngineConfig(model="m.gguf"), path)
        assert llm.slots == ([16, 16, 8] if name == "cpu" else [16])
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
        ((40, 340, 160), (24, 210, 75), 0, [True] * 3, [True] * 3),
        ((36, 315, 150), (24, 210, 75), 0, [True] * 3, [True] * 3),
        ((35.9, 340, 160), (24, 210, 75), 1, [False, True, True], [True] * 3),
        ((40, 314, 160), (24, 210, 75), 1, [True, False, True], [True] * 3),
        ((40, 340, 149), (24, 210, 75), 1, [True, True, False], [True] * 3),
        ((40, 340, 160), (19.1, 210, 75), 1, [True] * 3, [False, True, True]),
        ((40, 340, 160), (24, 167, 75), 1, [True] * 3, [True, False, True]),
        ((40, 340, 160), (24, 210, 59), 1, [True] * 3, [True, True, False]),
        ((40, 340, 160), (19.2, 168, 60), 0, [True] * 3, [True] * 3),
    ],
    ids=[
        "fast", "just", "slow-single", "slow-batch", "slow-slots", "busy-single", "busy-batch", "busy-slots",
        "valid-floor",
    ],
)  # fmt: skip
def test_the_comparison_is_red_or_green(
    measure: Measure, ours: Any, theirs: Any, code: int, reached: list[bool], valid: list[bool]
) -> None:
    """At least 1.5 times one stream and a batch, twice the continuous batching; void below 80 % of quiet figures."""
    # A hair above, so that exact borders do not hang on floating point.
    by_size = [
        {size: [speed * 1.00001] * 3 for size, speed in zip((1, 16, 40), each, strict=True)} for each in (ours, theirs)
    ]
    by_size[0] = {size: [speed * 1.00001 for speed in speeds] for size, speeds in by_size[0].items()}
    found, said = measure("cpu", *by_size)
    assert found == code
    assert [row["reached"] for row in said["results"]] == reached
    assert [row["reference_valid"] for row in said["results"]] == valid
    assert [row["workload"] for row in said["results"]] == ["single", "batch", "slots"]


def test_the_ratio_is_that_of_neighbours_in_time(measure: Measure) -> None:
    """The machine halves its speed for the last two runs of both: the ratio does not notice."""
    ours = {1: [60.0, 30.0, 30.0], 16: [600.0, 300.0, 300.0], 40: [200.0, 100.0, 100.0]}
    theirs = {1: [40.0, 20.0, 20.0], 16: [400.0, 200.0, 200.0], 40: [80.0, 40.0, 40.0]}
    _, said = measure("cpu", ours, theirs)
    assert [row["ratio"] for row in said["results"]] == pytest.approx([1.5, 1.5, 2.5])


def test_both_sides_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(run, "time", clock)
    llm, other = (TimedLLM(clock, {1: [50.0] * 3, 16: [500.0] * 3, 40: [100.0] * 3}) for _ in range(2))
    for goal in run.GOALS:
        run._compare_goal(llm, other, goal)  # type: ignore[arg-type]
    assert llm.seen == other.seen
    warm_up = run._WARM_UP_TOKENS
    single, batch, slots = sum(SINGLE.lengths()), sum(BATCH.lengths()), sum(SLOTS.lengths())
    assert (single, batch, slots) == (128, 1024, 1060)
    short = sum(min(warm_up, length) for length in SLOTS.lengths())
    assert llm.seen == [
        (1, warm_up), *[(1, single)] * 3, (16, 16 * warm_up), *[(16, batch)] * 3, (40, short), *[(40, slots)] * 3,
    ]  # fmt: skip
