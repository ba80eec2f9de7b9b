"""What would make a refused plan succeed: one change each, that can be applied to the very snapshot."""

from dataclasses import dataclass, replace
from typing import Protocol

from engine.memory.snapshot import MIB, MemorySnapshot
from engine.memory.units import bytes_text


class Advice(Protocol):
    """One change to a snapshot."""

    def apply(self, snapshot: MemorySnapshot) -> MemorySnapshot:
        """The snapshot as it would be."""

    def to_json(self) -> dict[str, str | int | float]:
        """The object that the command line prints."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Other programs give this many bytes back."""

    free_bytes: int

    def apply(self, snapshot: MemorySnapshot) -> MemorySnapshot:
        """See `Advice`."""
        return replace(snapshot, free_bytes=snapshot.free_bytes + self.free_bytes)

    def to_json(self) -> dict[str, str | int | float]:
        """See `Advice`."""
        return {"action": "free", "bytes": self.free_bytes}

    def __str__(self) -> str:
        return f"free {bytes_text(self.free_bytes)} from other programs"


@dataclass(frozen=True, slots=True)
class SetOwnLimit:
    """This process may hold this share of the device."""

    fraction: float

    def apply(self, snapshot: MemorySnapshot) -> MemorySnapshot:
        """See `Advice`."""
        return replace(snapshot, own_limit_fraction=self.fraction)

    def to_json(self) -> dict[str, str | int | float]:
        """See `Advice`."""
        return {"action": "own_limit", "fraction": self.fraction}

    def __str__(self) -> str:
        return f"set your limit to {100 * self.fraction:.4g} % of the device"


@dataclass(frozen=True, slots=True)
class SetKvBytes:
    """The cache has this size."""

    kv_bytes: int

    def apply(self, snapshot: MemorySnapshot) -> MemorySnapshot:
        """See `Advice`."""
        return replace(snapshot, kv_bytes_requested=self.kv_bytes)

    def to_json(self) -> dict[str, str | int | float]:
        """See `Advice`."""
        return {"action": "kv_bytes", "bytes": self.kv_bytes}

    def __str__(self) -> str:
        return f"ask for a KV cache of {self.kv_bytes:,} bytes"


@dataclass(frozen=True, slots=True)
class SetMargin:
    """The safety margin has this size."""

    margin_bytes: int

    def apply(self, snapshot: MemorySnapshot) -> MemorySnapshot:
        """See `Advice`."""
        return replace(snapshot, margin_bytes=self.margin_bytes)

    def to_json(self) -> dict[str, str | int | float]:
        """See `Advice`."""
        return {"action": "margin", "bytes": self.margin_bytes}

    def __str__(self) -> str:
        return f"lower the safety margin to {self.margin_bytes // MIB:,} MiB"


@dataclass(frozen=True, slots=True)
class SetBlockSize:
    """Blocks of this many tokens; their bytes shrink in proportion."""

    block_size_tokens: int

    def apply(self, snapshot: MemorySnapshot) -> MemorySnapshot:
        """See `Advice`."""
        block_bytes = snapshot.block_bytes * self.block_size_tokens // snapshot.block_size_tokens
        return replace(snapshot, block_size_tokens=self.block_size_tokens, block_bytes=block_bytes)

    def to_json(self) -> dict[str, str | int | float]:
        """See `Advice`."""
        return {"action": "block_size", "tokens": self.block_size_tokens}

    def __str__(self) -> str:
        return f"use blocks of {self.block_size_tokens} tokens"
