"""Decode rows by a kernel of our own that reads the paged cache in place; prefill chunks by SDPA. For CPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.attention.backend import ALL_TOKENS, Attention, AttentionInputs, LayerWindows
from engine.attention.gather_sdpa import ChunkAttention
from engine.cache.kv_cache import KVCache

if TYPE_CHECKING:
    from engine.native.kernels import Kernels


@dataclass(frozen=True, slots=True)
class NativePaged:
    """Back end for CPUs in bfloat16."""

    kernels: "Kernels"
    windows: LayerWindows = ALL_TOKENS
    name: str = "paged kernel for CPUs"

    @property
    def is_capturable(self) -> bool:
        """See AttentionBackend."""
        return False

    def prepare(self, inputs: AttentionInputs, cache: KVCache) -> Attention:
        """See AttentionBackend."""
        return _NativeAttention(self.kernels, inputs, cache, self.windows)


class _NativeAttention:
    def __init__(
        self, kernels: "Kernels", inputs: AttentionInputs, cache: KVCache, windows: LayerWindows
    ) -> None:  # fmt: skip
        self._cache = cache
        self._windows = windows
        self._num_decode = inputs.num_decode
        self._chunk_slots = inputs.slots[inputs.num_decode :]
        keys = cache.layer(0)[0]
        self._chunks = [ChunkAttention(chunk, keys.dtype, windows) for chunk in inputs.chunks]
        self._decode: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor] | None = None
        if inputs.num_decode:
            self._decode = kernels.attention(
                slots=inputs.slots[: inputs.num_decode], tables=inputs.decode_block_tables,
                lengths=inputs.decode_lengths, block_size=cache.block_size, num_kv_heads=keys.shape[2],
            )  # fmt: skip

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self._cache.layer(layer)
        rows = self._num_decode
        if self._chunks:
            self._cache.store(layer, k[rows:], v[rows:], self._chunk_slots)
        parts = [chunk.attend(layer, q, keys, values) for chunk in self._chunks]
        if self._decode is not None:
            parts.insert(0, self._decode(q[:rows], k[:rows], v[:rows], keys, values, self._windows.of(layer)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)
