"""What was measured before a plan: the numbers of one moment, in bytes, checked as they come in. Knows no device."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Self

from engine.errors import UsageError

MIB = 1 << 20
MIN_CONTEXT_TOKENS = 512  # nobody starts a chat for less
PADDING_BLOCKS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot:
    """A device and this process on it, at the end of the worst-case warm-up.

    Attributes:
        total_bytes: the whole device.
        free_bytes: free for anybody, after this process's allocator emptied its cache.
        allocated_bytes: what this process's allocator has handed out.
        peak_bytes: its peak during the warm-up, after a reset.
        graphs_bytes: what captured graphs will take.
        margin_bytes: left alone for the growth of other programs.
        block_bytes: keys and values of one block in all layers.
        block_size_tokens: tokens in one block.
        max_model_len_tokens: the longest context wanted.
        max_num_seqs: most sequences that run at once.
        own_limit_fraction: the share of the device that this process may hold, where the user set one.
        own_bytes: what this process holds in all, weights included; goes with `own_limit_fraction`.
        kv_bytes_requested: the size of the cache, where the user asked for one.

    Raises:
        UsageError: a number that cannot be true, by name.
    """

    total_bytes: int
    free_bytes: int
    allocated_bytes: int
    peak_bytes: int
    graphs_bytes: int
    margin_bytes: int
    block_bytes: int
    block_size_tokens: int
    max_model_len_tokens: int
    max_num_seqs: int
    own_limit_fraction: float | None = None
    own_bytes: int | None = None
    kv_bytes_requested: int | None = None

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ZERO:
            _require(self, name, _is_count, "a whole number of 0 or more")
        for name in _AT_LEAST_ONE:
            _require(self, name, lambda value: _is_count(value) and value >= 1, "a whole number of 1 or more")
        if self.own_bytes is not None:
            _require(self, "own_bytes", _is_count, "a whole number of 0 or more, or null")
        if self.kv_bytes_requested is not None:
            _require(self, "kv_bytes_requested", _is_count, "a whole number of 0 or more, or null")
        if self.own_limit_fraction is not None:
            _require(self, "own_limit_fraction", _is_share, "a number above 0 and at most 1, or null")
            if self.own_bytes is None:
                raise UsageError("The snapshot has own_limit_fraction, but not own_bytes, which the limit counts.")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the object of a snapshot file.

        Raises:
            UsageError: fields that are missing or unknown, or a number that cannot be true.
        """
        known = {field.name: field for field in fields(cls)}
        missing = [name for name, field in known.items() if field.default is MISSING and name not in data]
        if missing:
            raise UsageError(f"The snapshot lacks {', '.join(missing)}.")
        unknown = sorted(data.keys() - known.keys())
        if unknown:
            raise UsageError(f"The snapshot has fields that no snapshot has: {', '.join(unknown)}.")
        return cls(**data)

    @property
    def activation_bytes(self) -> int:
        """What a step takes for a moment, beyond what stays allocated."""
        return max(self.peak_bytes - self.allocated_bytes, 0)

    @property
    def device_room_bytes(self) -> int:
        """Room for the cache on the device; negative where the other terms alone do not fit."""
        return self.free_bytes - self.activation_bytes - self.graphs_bytes - self.margin_bytes

    @property
    def own_room_bytes(self) -> int | None:
        """Room for the cache within the user's limit, which takes no margin; None without one."""
        if self.own_limit_fraction is None or self.own_bytes is None:
            return None
        limit_bytes = int(self.own_limit_fraction * self.total_bytes)
        return limit_bytes - self.own_bytes - self.activation_bytes - self.graphs_bytes

    @property
    def min_context_tokens(self) -> int:
        """The shortest context worth starting for."""
        return min(MIN_CONTEXT_TOKENS, self.max_model_len_tokens)

    @property
    def min_kv_bytes(self) -> int:
        """The smallest cache worth starting for, padding block included."""
        return (self.blocks_for(self.min_context_tokens) + PADDING_BLOCKS) * self.block_bytes

    @property
    def old_formula_blocks(self) -> int:
        """Blocks by nano-vllm's formula (`engine/model_runner.py`), which takes a share of the device for a cap on all.

        On a card that other programs share it comes out negative where there is room.
        """
        used_bytes = self.total_bytes - self.free_bytes
        available_bytes = int(0.9 * self.total_bytes) - used_bytes - self.peak_bytes + self.allocated_bytes
        return available_bytes // self.block_bytes

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that this many tokens fill or begin."""
        return -(-num_tokens // self.block_size_tokens)


_AT_LEAST_ZERO = ("total_bytes", "free_bytes", "allocated_bytes", "peak_bytes", "graphs_bytes", "margin_bytes")
_AT_LEAST_ONE = ("block_bytes", "block_size_tokens", "max_model_len_tokens", "max_num_seqs")


def _require(snapshot: MemorySnapshot, name: str, accept: Callable[[Any], bool], wanted: str) -> None:
    value = getattr(snapshot, name)
    if not accept(value):
        raise UsageError(f"The snapshot's {name} is {value!r}; it must be {wanted}.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
