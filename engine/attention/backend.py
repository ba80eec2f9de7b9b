"""What every attention back end is given and has to do."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.cache.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class LayerWindows:
    """How many tokens a query of each layer sees, itself included; 0 is all.

    `per_layer` follows `ModelArchitecture.layer_windows`: empty when every layer sees all.
    """

    per_layer: tuple[int | None, ...] = ()

    def of(self, layer: int) -> int:
        """The window of a layer, or 0."""
        return (self.per_layer[layer] or 0) if self.per_layer else 0

    @property
    def distinct(self) -> frozenset[int]:
        """Every window that occurs."""
        return frozenset(window or 0 for window in self.per_layer) or frozenset({0})


ALL_TOKENS = LayerWindows()
"""Every layer sees all."""


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Consecutive rows of one sequence that see what came before them and themselves, causally.

    `block_table` (blocks,) covers start + num_tokens tokens.
    """

    first_row: int
    num_tokens: int
    start: int
    block_table: Tensor


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """The layout of one packed batch: decode rows first, one token each, then prefill chunks.

    Attributes:
        slots: (tokens,) where each row's K and V go.
        num_decode: number of decode rows.
        decode_block_tables: (num_decode, width), padded with block 0.
        decode_lengths: (num_decode,) tokens each decode row sees, itself included.
        chunks: the prefill chunks in row order.
    """

    slots: Tensor
    num_decode: int
    decode_block_tables: Tensor
    decode_lengths: Tensor
    chunks: tuple[PrefillChunk, ...]


class Attention(Protocol):
    """Attention of one prepared batch, called once per layer."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v (tokens, kv_heads, head_dim), attend with q (tokens, heads, head_dim); shape of q."""


class AttentionBackend(Protocol):
    """A way to compute attention over the paged cache."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def windows(self) -> LayerWindows:
        """What the queries of each layer see."""

    @property
    def is_capturable(self) -> bool:
        """Whether decode rows can be captured in a CUDA graph: nothing is read back, tensors are read when it runs."""

    def prepare(self, inputs: AttentionInputs, cache: KVCache) -> Attention:
        """What all layers of a batch share is computed here, once."""
