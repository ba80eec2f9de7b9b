"""What scheduling itself costs: the scheduler, the block pool and the step's statistics, without any model.

Decode steps alone: every sequence computes one token in every step, crosses into another block every `BLOCK_SIZE`
steps, and has the full block hashed and registered as a prefix. Costs are processor time of this process, so that
other programs count as little as possible.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.cache.block_pool import BlockPool
from engine.requests import SamplingParams
from engine.scheduling.batch import Batch
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import Sequence
from engine.step_stats import step_stats
from engine.trace.export import check_writable, write_json

BLOCK_SIZE = 16
NUM_SEQUENCES = (1, 16, 64, 256, 512)
GOAL_US = 1_000.0  # at 256 sequences
GOAL_SEQUENCES = 256
_PROMPT_TOKENS = 64
_STEPS = 20 * BLOCK_SIZE  # every sequence fills twenty blocks
_REPETITIONS = 5
_TOKEN_ID = 5


@dataclass(frozen=True, slots=True)
class StepCost:
    """Processor time of a decode step in microseconds: the means of its parts, and the dearest step there can be.

    In `aligned_us` every sequence begins a block in the same step; usually one in `BLOCK_SIZE` does.
    """

    num_sequences: int
    schedule_us: float
    complete_us: float
    stats_us: float
    aligned_us: float

    @property
    def step_us(self) -> float:
        """The whole step, mean."""
        return self.schedule_us + self.complete_us + self.stats_us

    @property
    def sequence_us(self) -> float:
        """For one sequence."""
        return self.step_us / self.num_sequences


def bench_scheduler(json_file: Path | None) -> int:
    """Measure and print a table; exit code 1 when a step of 256 sequences takes a millisecond or more."""
    if json_file is not None:
        check_writable(json_file)
    header = f"{'sequences':>9}{'schedule':>11}{'complete':>11}{'statistics':>12}{'step':>9}{'per sequence':>14}"
    print(f"{header}{'all begin a block':>19}   µs of processor time")
    costs = []
    for num_sequences in NUM_SEQUENCES:
        cost = measure(num_sequences)
        costs.append(cost)
        print(
            f"{num_sequences:>9}{cost.schedule_us:>11.1f}{cost.complete_us:>11.1f}{cost.stats_us:>12.1f}"
            f"{cost.step_us:>9.1f}{cost.sequence_us:>14.2f}{cost.aligned_us:>19.1f}"
        )
    if json_file is not None:
        write_json(json_file, [_to_json(cost) for cost in costs])
    goal = next(cost for cost in costs if cost.num_sequences == GOAL_SEQUENCES)
    return 0 if goal.step_us < GOAL_US else 1


def measure(
    num_sequences: int,
    *,
    steps: int = _STEPS,
    repetitions: int = _REPETITIONS,
    clock: Callable[[], float] = time.process_time,
) -> StepCost:
    """The least of several runs, each on a fresh scheduler: whatever else happens on the machine only adds to it."""
    runs = [_run(num_sequences, steps, clock, stagger=True).means_us() for _ in range(repetitions)]
    aligned = [_run(num_sequences, steps, clock, stagger=False).dearest_us() for _ in range(repetitions)]
    schedule_us, complete_us, stats_us = min(runs, key=sum)
    return StepCost(num_sequences, schedule_us, complete_us, stats_us, min(aligned))


class _Run:
    """Times of the three parts of every step."""

    def __init__(self) -> None:
        self.parts_s: list[tuple[float, float, float]] = []

    def means_us(self) -> list[float]:
        """Mean of each part."""
        return [1e6 * statistics.fmean(part) for part in zip(*self.parts_s, strict=True)]

    def dearest_us(self) -> float:
        """Where blocks are aligned, steps repeat every `BLOCK_SIZE`: the median of the dearest of them."""
        totals = [1e6 * sum(parts) for parts in self.parts_s]
        return max(statistics.median(totals[first::BLOCK_SIZE]) for first in range(BLOCK_SIZE))


def _run(num_sequences: int, steps: int, clock: Callable[[], float], *, stagger: bool) -> _Run:
    scheduler = _filled(num_sequences, steps, stagger=stagger)
    run = _Run()
    with _no_garbage_collection():
        for _ in range(steps):
            run.parts_s.append(_timed_step(scheduler, clock))
    return run


def _timed_step(scheduler: Scheduler, clock: Callable[[], float]) -> tuple[float, float, float]:
    started = clock()
    batch = scheduler.schedule()
    scheduled = clock()
    sampled = _sampled(batch)
    computed = clock()
    for sequence in scheduler.complete(batch, sampled):
        scheduler.reached_limit(sequence)
    completed = clock()
    step_stats(batch, scheduler, schedule_ms=0.0, forward_ms=0.0, sample_ms=0.0)
    return scheduled - started, completed - computed, clock() - completed


def _filled(num_sequences: int, steps: int, *, stagger: bool) -> Scheduler:
    """A scheduler whose sequences have all computed their prompts and can go on for all steps."""
    num_tokens = _PROMPT_TOKENS + BLOCK_SIZE + steps + 2
    pool = BlockPool(num_sequences * (num_tokens // BLOCK_SIZE + 2), BLOCK_SIZE)
    scheduler = Scheduler(
        pool,
        max_num_seqs=num_sequences,
        max_num_batched_tokens=num_sequences * num_tokens,
        max_model_len=2 * num_tokens,
    )
    for index in range(num_sequences):
        length = _PROMPT_TOKENS + (index % BLOCK_SIZE if stagger else 0)
        prompt = [index, *range(length - 1)]  # no two share a prefix
        scheduler.add(Sequence(f"request {index}", prompt, SamplingParams(max_tokens=num_tokens)))
    batch = scheduler.schedule()
    assert len(batch.items) == num_sequences, "all prompts are computed in one step"
    scheduler.complete(batch, _sampled(batch))
    return scheduler


def _sampled(batch: Batch) -> dict[str, int]:
    return {item.sequence.request_id: _TOKEN_ID for item in batch.items}


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Its pauses depend on everything else that the process holds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _to_json(cost: StepCost) -> dict[str, float]:
    return {
        "sequences": cost.num_sequences, "schedule_us": cost.schedule_us, "complete_us": cost.complete_us,
        "stats_us": cost.stats_us, "step_us": cost.step_us, "sequence_us": cost.sequence_us,
        "aligned_us": cost.aligned_us,
    }  # fmt: skip
