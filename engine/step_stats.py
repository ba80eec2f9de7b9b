"""A step in numbers, as it stands after its finishes. Plain Python: counts only, and nothing is counted twice."""

import time

from engine.events import Phase, SequenceRow, StepStats
from engine.scheduling.batch import Batch
from engine.scheduling.scheduler import Scheduler


def step_stats(
    batch: Batch,
    scheduler: Scheduler,
    *,
    schedule_ms: float,
    forward_ms: float,
    sample_ms: float,
    rows: tuple[SequenceRow, ...] = (),
) -> StepStats:
    """What the step did and what it left; the same work for one sequence as for many."""
    pool = scheduler.pool
    return StepStats(
        step=batch.step,
        time_s=time.monotonic(),
        prefill_tokens=batch.prefill_tokens,
        decode_tokens=batch.decode_tokens,
        running=scheduler.num_running,
        waiting=scheduler.num_waiting,
        preempted=len(batch.preempted),
        blocks_total=pool.num_blocks,
        blocks_free=pool.num_free,
        blocks_used=pool.num_used,
        blocks_cached=pool.num_cached,
        schedule_ms=schedule_ms,
        forward_ms=forward_ms,
        sample_ms=sample_ms,
        rows=rows,
        recomputed_tokens=batch.recomputed_tokens,
        waits_for=batch.waits_for,
    )


def sequence_rows(batch: Batch, scheduler: Scheduler) -> tuple[SequenceRow, ...]:
    """One row for every sequence of the step, then for every one that waits."""
    computed = tuple(
        SequenceRow(item.sequence.request_id, item.phase, item.num_tokens, len(item.sequence.block_table))
        for item in batch.items
    )
    return computed + tuple(SequenceRow(each.request_id, Phase.WAITING, 0, 0) for each in scheduler.waiting)
