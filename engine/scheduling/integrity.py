"""What must hold between two steps, recomputed from scratch. Slow on purpose: it trusts no count."""

from collections.abc import Collection, Mapping

from engine.cache.block_pool import BlockPool, IntegrityError
from engine.scheduling.sequence import Sequence, SequenceState


def check_running(sequences: Collection[Sequence], prompts: Mapping[str, Sequence], pool: BlockPool) -> None:
    """Sequences that hold blocks, and which of them have tokens to catch up with.

    Raises:
        IntegrityError: with the first thing that does not add up.
    """
    pool.check_integrity(sequence.block_table for sequence in sequences)
    for sequence in sequences:
        _check_state(sequence, SequenceState.RUNNING)
        _check_tokens(sequence, pool.block_size)
        if sequence.is_decoding == (sequence.request_id in prompts):
            raise IntegrityError(f"request {sequence.request_id} is on the wrong side of its prompt")
    foreign = prompts.keys() - {sequence.request_id for sequence in sequences}
    if foreign:
        raise IntegrityError(f"request {min(foreign)} is to catch up, but does not run")


def check_waiting(sequences: Collection[Sequence]) -> None:
    """Sequences that hold nothing.

    Raises:
        IntegrityError: with the first thing that does not add up.
    """
    for sequence in sequences:
        _check_state(sequence, SequenceState.WAITING)
        if sequence.block_table or sequence.num_computed:
            raise IntegrityError(f"request {sequence.request_id} waits, but holds blocks")


def _check_state(sequence: Sequence, expected: SequenceState) -> None:
    if sequence.state is not expected:
        raise IntegrityError(
            f"request {sequence.request_id} is {sequence.state.value}, but stands among those that are {expected.value}"
        )


def _check_tokens(sequence: Sequence, block_size: int) -> None:
    name = f"request {sequence.request_id}"
    held_tokens = len(sequence.block_table) * block_size
    if sequence.num_computed > held_tokens:
        raise IntegrityError(f"{name} has computed more tokens than its blocks hold")
    if sequence.num_computed > sequence.num_tokens:
        raise IntegrityError(f"{name} has computed more tokens than it has")
    if not sequence.is_decoding and sequence.num_tokens > held_tokens:
        raise IntegrityError(f"{name} is in its prompt without blocks for all of it")
    if sequence.num_registered_blocks * block_size > sequence.num_computed:
        raise IntegrityError(f"{name} has registered blocks that are not computed")
