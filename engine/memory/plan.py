"""How many KV blocks fit: pure arithmetic from a snapshot to a plan, or to a refusal that says what would help.

    activations = max(peak - allocated, 0)
    device room = free - activations - graphs - margin
    own room    = limit * total - own - activations - graphs        where the user limits our share
    blocks      = floor(smallest of both and the size asked for / block bytes), one of them for padding

`free` counts what every process holds, so nothing else needs to be known about the others; the allocator's numbers are
this process's alone. A limit on our own share is held against our own bytes, never against what others use. Memory
that no sequence could ever use is not taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from engine.memory.advice import Advice, FreeMemory, SetBlockSize, SetKvBytes, SetMargin, SetOwnLimit
from engine.memory.refusal import LimitedBy, PlanRefusedError
from engine.memory.snapshot import MIB, PADDING_BLOCKS, MemorySnapshot

__all__ = ["Advice", "LimitedBy", "MemoryPlan", "MemorySnapshot", "PlanRefusedError", "plan"]

MIN_MARGIN_BYTES = 128 * MIB
_BLOCK_SIZES_TOKENS = (128, 64, 32, 16)
_FRACTION_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A cache that fits.

    Attributes:
        snapshot: what it was planned from.
        usable_blocks: blocks for sequences.
        max_model_len_tokens: the longest context, shortened where the whole does not fit into the cache.
        limited_by: the term that decided the size.
    """

    snapshot: MemorySnapshot
    usable_blocks: int
    max_model_len_tokens: int
    limited_by: LimitedBy

    @property
    def allocated_blocks(self) -> int:
        """Usable blocks and the one that padding writes to."""
        return self.usable_blocks + PADDING_BLOCKS

    @property
    def tokens(self) -> int:
        """Tokens that the usable blocks hold."""
        return self.usable_blocks * self.snapshot.block_size_tokens

    @property
    def kv_bytes(self) -> int:
        """Size of the cache."""
        return self.allocated_blocks * self.snapshot.block_bytes

    def to_json(self) -> dict[str, int | str]:
        """The object that the command line prints."""
        return {
            "usable_blocks": self.usable_blocks,
            "allocated_blocks": self.allocated_blocks,
            "tokens": self.tokens,
            "max_model_len_tokens": self.max_model_len_tokens,
            "limited_by": self.limited_by.value,
            "old_formula_blocks": self.snapshot.old_formula_blocks,
        }


def plan(snapshot: MemorySnapshot) -> MemoryPlan:
    """Size the KV cache.

    Raises:
        PlanRefusedError: there is no room for the shortest context worth starting for, or for the size asked for.
    """
    refusal = _refusal(snapshot)
    if refusal is not None:
        limited_by, shortfall_bytes = refusal
        advice = _advice(snapshot, shortfall_bytes)
        raise PlanRefusedError(snapshot, limited_by=limited_by, shortfall_bytes=shortfall_bytes, advice=advice)
    limited_by, room_bytes = _smallest_room(snapshot)
    usable_blocks = room_bytes // snapshot.block_bytes - PADDING_BLOCKS
    useful_blocks = snapshot.max_num_seqs * snapshot.blocks_for(snapshot.max_model_len_tokens)
    if usable_blocks > useful_blocks:
        usable_blocks, limited_by = useful_blocks, LimitedBy.MAX_USEFUL
    return MemoryPlan(
        snapshot=snapshot,
        usable_blocks=usable_blocks,
        max_model_len_tokens=min(snapshot.max_model_len_tokens, usable_blocks * snapshot.block_size_tokens),
        limited_by=limited_by,
    )


def _measured_room(snapshot: MemorySnapshot) -> tuple[LimitedBy, int]:
    """The smaller of the rooms that are facts rather than wishes."""
    rooms = [(LimitedBy.DEVICE, snapshot.device_room_bytes)]
    if snapshot.own_room_bytes is not None:
        rooms.append((LimitedBy.OWN_LIMIT, snapshot.own_room_bytes))
    return min(rooms, key=lambda room: room[1])


def _smallest_room(snapshot: MemorySnapshot) -> tuple[LimitedBy, int]:
    """The room that decides; a size asked for counts only where it fits."""
    limited_by, room_bytes = _measured_room(snapshot)
    requested_bytes = snapshot.kv_bytes_requested
    if requested_bytes is not None and requested_bytes <= room_bytes:
        return LimitedBy.KV_SIZE, requested_bytes
    return limited_by, room_bytes


def _refusal(snapshot: MemorySnapshot) -> tuple[LimitedBy, int] | None:
    """The binding term and what it lacks, or None where a plan is possible."""
    limited_by, room_bytes = _smallest_room(snapshot)
    # A size asked for that fits is the room itself, so only one that does not can be more than the room.
    shortfall_bytes = max(snapshot.min_kv_bytes, snapshot.kv_bytes_requested or 0) - room_bytes
    return (limited_by, shortfall_bytes) if shortfall_bytes > 0 else None


def _advice(snapshot: MemorySnapshot, shortfall_bytes: int) -> tuple[Advice, ...]:
    """Every single change that helps. Each is tried on the snapshot before it is given."""
    return tuple(advice for advice in _candidates(snapshot, shortfall_bytes) if _helps(advice, snapshot))


def _candidates(snapshot: MemorySnapshot, shortfall_bytes: int) -> Iterator[Advice]:
    held_by_us_bytes = max(snapshot.allocated_bytes, snapshot.own_bytes or 0)
    if shortfall_bytes <= snapshot.total_bytes - snapshot.free_bytes - held_by_us_bytes:
        yield FreeMemory(shortfall_bytes)
    yield from _own_limits(snapshot, shortfall_bytes)
    yield from _kv_sizes(snapshot)
    lower_margin_bytes = (snapshot.margin_bytes - shortfall_bytes) // MIB * MIB
    if lower_margin_bytes >= MIN_MARGIN_BYTES:
        yield SetMargin(lower_margin_bytes)
    yield from _block_sizes(snapshot)


def _own_limits(snapshot: MemorySnapshot, shortfall_bytes: int) -> Iterator[Advice]:
    """The limit raised as far as needed, in steps that people type, at most to the whole device."""
    if snapshot.own_limit_fraction is None or not snapshot.total_bytes:
        return
    needed_bytes = int(snapshot.own_limit_fraction * snapshot.total_bytes) + shortfall_bytes
    steps = -(-needed_bytes * _FRACTION_STEPS // snapshot.total_bytes)
    # One step more where the product comes out a byte short in floating point.
    fractions = [count / _FRACTION_STEPS for count in (steps, steps + 1) if count <= _FRACTION_STEPS]
    yield from _first_that_helps(snapshot, [SetOwnLimit(fraction) for fraction in fractions])


def _kv_sizes(snapshot: MemorySnapshot) -> Iterator[Advice]:
    """Where a size was asked for: the largest that fits, if it was too large; the smallest that serves otherwise."""
    if snapshot.kv_bytes_requested is None:
        return
    room_bytes = _measured_room(snapshot)[1]
    if snapshot.kv_bytes_requested > room_bytes >= snapshot.min_kv_bytes:
        yield SetKvBytes(room_bytes // snapshot.block_bytes * snapshot.block_bytes)
    elif snapshot.kv_bytes_requested <= room_bytes:
        yield SetKvBytes(snapshot.min_kv_bytes)


def _block_sizes(snapshot: MemorySnapshot) -> Iterator[Advice]:
    """The largest smaller power of two that helps: the padding block and the last one of a sequence waste less."""
    sizes = [
        size
        for size in _BLOCK_SIZES_TOKENS
        if size < snapshot.block_size_tokens and not snapshot.block_bytes * size % snapshot.block_size_tokens
    ]
    yield from _first_that_helps(snapshot, [SetBlockSize(size) for size in sizes])


def _first_that_helps(snapshot: MemorySnapshot, candidates: Sequence[Advice]) -> Iterator[Advice]:
    yield from islice((advice for advice in candidates if _helps(advice, snapshot)), 1)


def _helps(advice: Advice, snapshot: MemorySnapshot) -> bool:
    return _refusal(advice.apply(snapshot)) is None
