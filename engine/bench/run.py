"""Runs a workload on the engine, alternating with the reference where there is one, and prints medians."""

import platform
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from engine.bench.reference import TransformersReference

from engine.bench.workloads import BATCH, COMPARISON, SINGLE, SLOTS, WORKLOADS, Workload
from engine.config import EngineConfig
from engine.events import ModelInfo
from engine.llm import LLM
from engine.trace.export import check_writable, write_json
from engine.weights.source import open_weights

_CPU_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_WARM_UP_TOKENS = 8


class Generator(Protocol):
    """Something that can be measured."""

    def generate(self, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
        """Exactly that many new tokens for each prompt."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A workload of the comparison: the least ratio to reach, and what the reference reaches on a quiet machine."""

    workload: Workload
    least_ratio: float
    quiet_reference_tokens_per_s: float
    continuous: bool = False  # against transformers' continuous batching instead of its padded batch

    @property
    def slowest_valid_reference(self) -> float:
        """Below this the machine is too busy for the figures to mean anything."""
        return 0.8 * self.quiet_reference_tokens_per_s


GOALS = (Goal(SINGLE, 1.5, 24.0), Goal(BATCH, 1.5, 210.0), Goal(SLOTS, 2.0, 75.0, continuous=True))


def bench(name: str, config: EngineConfig, json_file: Path | None) -> int:
    """Measure and print; exit code 1 when a goal of the comparison is missed or the reference is too slow."""
    if json_file is not None:
        check_writable(json_file)
    if name == COMPARISON:
        info, result, code = _compare(config)
    else:
        info, result, code = _measure_alone(config, WORKLOADS[name])
    if json_file is not None:
        write_json(json_file, {"hardware": _hardware(info), "model": info.name, "results": result})
    return code


def _load(config: EngineConfig, workload: Workload) -> LLM:
    sized = replace(config, prefix_caching=False, max_model_len=2048)
    return LLM(replace(sized, max_num_seqs=workload.num_slots))


def _measure_alone(config: EngineConfig, workload: Workload) -> tuple[ModelInfo, list[dict[str, object]], int]:
    with _load(config, workload) as llm:
        print(_hardware_line(llm.info))
        _warm_up(llm, workload)
        speeds = [_tokens_per_s(llm, workload, repetition) for repetition in range(workload.repetitions)]
        print(f"{workload.title}: {statistics.median(speeds):,.1f} tok/s (runs {_list(speeds)})")
        return llm.info, [{"workload": workload.name, "tokens_per_s": statistics.median(speeds), "runs": speeds}], 0


def _compare(config: EngineConfig) -> tuple[ModelInfo, list[dict[str, object]], int]:
    rows = []
    reference = None
    for goal in GOALS:
        with _load(config, goal.workload) as llm:
            if reference is None:
                reference = _reference(config, llm.info)
                print(_hardware_line(llm.info))
                print(f"{'':<14}{'KVScope':>12}{'transformers':>16}{'ratio':>8}{'at least':>10}")
            if goal.continuous:
                with reference.continuous(goal.workload.num_slots) as continuous:
                    rows.append(_compare_goal(llm, continuous, goal))
            else:
                rows.append(_compare_goal(llm, reference, goal))
            info = llm.info
    return info, rows, 0 if all(row["reached"] and row["reference_valid"] for row in rows) else 1


def _reference(config: EngineConfig, info: ModelInfo) -> "TransformersReference":
    from engine.bench.reference import TransformersReference

    weights = open_weights(Path(config.model))
    try:
        return TransformersReference(weights, _CPU_DTYPES[info.dtype])
    finally:
        weights.close()


def _compare_goal(llm: LLM, reference: Generator, goal: Goal) -> dict[str, object]:
    """Alternate, so that a change of the machine's speed meets both sides."""
    workload = goal.workload
    for each in (llm, reference):
        _warm_up(each, workload)
    ours, theirs = [], []
    for repetition in range(workload.repetitions):
        ours.append(_tokens_per_s(llm, workload, repetition))
        theirs.append(_tokens_per_s(reference, workload, repetition))
    our_speed, their_speed = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    against = "   (its continuous batching)" if goal.continuous else ""
    print(
        f"{workload.title:<14}{our_speed:>12.1f}{their_speed:>16.1f}{ratio:>8.2f}{goal.least_ratio:>10.1f}"
        f"   tok/s{against}"
    )
    valid = their_speed >= goal.slowest_valid_reference
    if not valid:
        print(
            f"  The reference is below {goal.slowest_valid_reference:.1f} tok/s: this machine is busy or another kind; "
            "compare the ratio only."
        )
    return {
        "workload": workload.name, "tokens_per_s": our_speed, "runs": ours, "reference_tokens_per_s": their_speed,
        "reference_runs": theirs, "ratio": ratio, "least_ratio": goal.least_ratio,
        "reached": ratio >= goal.least_ratio, "reference_valid": valid,
    }  # fmt: skip


def _warm_up(engine: Generator, workload: Workload) -> None:
    engine.generate(workload.prompts(-1), [min(_WARM_UP_TOKENS, length) for length in workload.lengths()])


def _tokens_per_s(engine: Generator, workload: Workload, repetition: int) -> float:
    """New tokens over wall time, prefill included; for prefill workloads, prompt tokens count."""
    prompts, lengths = workload.prompts(repetition), workload.lengths()
    started = time.perf_counter()
    answers = engine.generate(prompts, lengths)
    elapsed = time.perf_counter() - started
    assert [len(answer) for answer in answers] == lengths, "a benchmark must compute what it counts"
    counted = sum(map(len, prompts)) if workload.new_tokens == 1 else sum(lengths)
    return counted / elapsed


def _hardware(info: ModelInfo) -> dict[str, object]:
    return {
        "processor": _processor_name(), "device": info.device, "dtype": info.dtype, "torch": torch.__version__,
        "python": platform.python_version(), "load_average": _load_average(),
    }  # fmt: skip


def _hardware_line(info: ModelInfo) -> str:
    load = _load_average()
    return f"{info.name} · {info.dtype} · {info.device} · {_processor_name()} · torch {torch.__version__} · load {load}"


def _load_average() -> float:
    return float(Path("/proc/loadavg").read_text().split()[0])


def _processor_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def _list(speeds: list[float]) -> str:
    return ", ".join(f"{speed:,.1f}" for speed in speeds)
