"""Gather the blocks of each sequence, then scaled_dot_product_attention: runs wherever torch runs.

Decode rows are one padded call; grouped queries share their key head as if they were one short query, so no key is
repeated in memory. Each prefill chunk is a call of its own, since their lengths differ widely.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.attention.backend import ALL_TOKENS, Attention, AttentionInputs, LayerWindows, PrefillChunk
from engine.cache.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class GatherSdpa:
    """Back end for cards without a kernel of ours, and for CPUs in float32."""

    windows: LayerWindows = ALL_TOKENS
    name: str = "gather + SDPA"

    @property
    def is_capturable(self) -> bool:
        """See AttentionBackend."""
        return False

    def prepare(self, inputs: AttentionInputs, cache: KVCache) -> Attention:
        """See AttentionBackend."""
        return _GatheredAttention(inputs, cache, self.windows)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Which blocks to read: ids to gather, or a range that lies in one piece and needs no copy."""

    ids: Tensor
    first: int | None
    count: int

    def read(self, cache: Tensor, rows: int) -> Tensor:
        """(blocks, block_size, kv_heads, head_dim) -> (rows, kv_heads, tokens, head_dim); a view where it can be."""
        read = cache.index_select(0, self.ids) if self.first is None else cache[self.first : self.first + self.count]
        return read.reshape(rows, -1, *read.shape[2:]).transpose(1, 2)


def _blocks(table: Tensor) -> _Blocks:
    ids = table.reshape(-1)
    numbers = ids.tolist()
    in_one_piece = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return _Blocks(ids, numbers[0] if in_one_piece else None, len(numbers))


class _GatheredAttention:
    def __init__(self, inputs: AttentionInputs, cache: KVCache, windows: LayerWindows) -> None:
        self._inputs = inputs
        self._cache = cache
        dtype = cache.layer(0)[0].dtype
        self._decode = _DecodeRows(inputs, cache.block_size, dtype, windows) if inputs.num_decode else None
        self._chunks = [ChunkAttention(chunk, dtype, windows) for chunk in inputs.chunks]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._cache.store(layer, k, v, self._inputs.slots)
        keys, values = self._cache.layer(layer)
        parts = [chunk.attend(layer, q, keys, values) for chunk in self._chunks]
        if self._decode is not None:
            parts.insert(0, self._decode.attend(layer, q[: self._inputs.num_decode], keys, values))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class _DecodeRows:
    """The decode rows of a step, padded to the longest."""

    def __init__(self, inputs: AttentionInputs, block_size: int, dtype: torch.dtype, windows: LayerWindows) -> None:
        self._blocks = _blocks(inputs.decode_block_tables)
        positions = torch.arange(inputs.decode_block_tables.shape[1] * block_size, device=inputs.slots.device)
        lengths = inputs.decode_lengths.unsqueeze(1)
        hidden = positions >= lengths
        self._masks = {
            window: _additive(hidden | (positions < lengths - window) if window else hidden, dtype)[:, None, None]
            for window in windows.distinct
        }
        self._windows = windows

    def attend(self, layer: int, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows, heads, head_dim = q.shape
        keys, values = self._blocks.read(keys, rows), self._blocks.read(values, rows)
        kv_heads = keys.shape[1]
        grouped = q.reshape(rows, kv_heads, heads // kv_heads, head_dim)
        mask = self._masks[self._windows.of(layer)].expand(rows, 1, heads // kv_heads, -1)
        return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).reshape(q.shape)


class ChunkAttention:
    """One prefill chunk over what came before it and itself."""

    def __init__(self, chunk: PrefillChunk, dtype: torch.dtype, windows: LayerWindows) -> None:
        self._rows = slice(chunk.first_row, chunk.first_row + chunk.num_tokens)
        self._seen = chunk.start + chunk.num_tokens
        self._blocks = _blocks(chunk.block_table)
        self._masks = {window: _causal_mask(chunk, window, dtype) for window in windows.distinct}
        self._windows = windows

    def attend(self, layer: int, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The chunk's rows of q (tokens, heads, head_dim) over the caches, which hold its own keys and values."""
        mask = self._masks[self._windows.of(layer)]
        keys, values = (self._blocks.read(cache, 1)[:, :, : self._seen] for cache in (keys, values))
        out = functional.scaled_dot_product_attention(
            q[self._rows].transpose(0, 1).unsqueeze(0), keys, values, attn_mask=mask, is_causal=mask is None,
            enable_gqa=True,
        )  # fmt: skip
        return out.squeeze(0).transpose(0, 1)


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))


def _causal_mask(chunk: PrefillChunk, window: int, dtype: torch.dtype) -> Tensor | None:
    """(num_tokens, start + num_tokens); None for a first chunk within the window, which is plainly causal."""
    seen = chunk.start + chunk.num_tokens
    if chunk.start == 0 and (not window or seen <= window):
        return None
    device = chunk.block_table.device
    columns = torch.arange(seen, device=device)
    rows = torch.arange(chunk.start, seen, device=device).unsqueeze(1)
    hidden = columns > rows
    return _additive(hidden | (columns <= rows - window) if window else hidden, dtype)
