"""Gather the blocks of each sequence, then scaled_dot_product_attention: runs wherever torch runs.

Decode rows are one padded call; grouped queries share their key head as if they were one short query, so no key is
repeated in memory. Each prefill chunk is a call of its own, since their lengths differ widely.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.attention.backend import Attention, AttentionInputs, PrefillChunk
from engine.cache.kv_cache import KVCache


class GatherSdpa:
    """Back end for CPUs and for cards without a kernel of ours."""

    name = "gather + SDPA"

    def prepare(self, inputs: AttentionInputs, cache: KVCache) -> Attention:
        """See AttentionBackend."""
        return _GatheredAttention(inputs, cache)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Which blocks to read: ids to gather, or a range that lies in one piece and needs no copy."""

    ids: Tensor
    first: int | None
    count: int

    def read(self, cache: Tensor) -> Tensor:
        """(blocks, block_size, kv_heads, head_dim) -> (count, block_size, kv_heads, head_dim)."""
        if self.first is not None:
            return cache[self.first : self.first + self.count]
        return cache.index_select(0, self.ids)


def _blocks(table: Tensor) -> _Blocks:
    ids = table.reshape(-1)
    numbers = ids.tolist()
    in_one_piece = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return _Blocks(ids, numbers[0] if in_one_piece else None, len(numbers))


class _GatheredAttention:
    def __init__(self, inputs: AttentionInputs, cache: KVCache) -> None:
        self._inputs = inputs
        self._cache = cache
        dtype = cache.layer(0)[0].dtype
        self._decode_blocks: _Blocks | None = None
        if inputs.num_decode:
            self._decode_blocks = _blocks(inputs.decode_block_tables)
            width = inputs.decode_block_tables.shape[1] * cache.block_size
            positions = torch.arange(width, device=inputs.slots.device)
            hidden = positions >= inputs.decode_lengths.unsqueeze(1)
            self._decode_mask = _additive(hidden, dtype).view(inputs.num_decode, 1, 1, width)
        self._chunks = [(chunk, _blocks(chunk.block_table), _causal_mask(chunk, dtype)) for chunk in inputs.chunks]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._cache.store(layer, k, v, self._inputs.slots)
        parts = []
        if self._decode_blocks is not None:
            parts.append(self._decode(layer, q[: self._inputs.num_decode], self._decode_blocks))
        for chunk, blocks, mask in self._chunks:
            rows = q[chunk.first_row : chunk.first_row + chunk.num_tokens]
            parts.append(self._prefill(layer, rows, chunk, blocks, mask))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(self, layer: int, q: Tensor, blocks: _Blocks) -> Tensor:
        rows, heads, head_dim = q.shape
        keys, values = (self._read(cache, blocks, rows) for cache in self._cache.layer(layer))
        kv_heads = keys.shape[1]
        grouped = q.reshape(rows, kv_heads, heads // kv_heads, head_dim)
        mask = self._decode_mask.expand(rows, 1, heads // kv_heads, -1)
        return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).reshape(q.shape)

    def _prefill(self, layer: int, q: Tensor, chunk: PrefillChunk, blocks: _Blocks, mask: Tensor | None) -> Tensor:
        seen = chunk.start + chunk.num_tokens
        keys, values = (self._read(cache, blocks, 1)[:, :, :seen] for cache in self._cache.layer(layer))
        out = functional.scaled_dot_product_attention(
            q.transpose(0, 1).unsqueeze(0), keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return out.squeeze(0).transpose(0, 1)

    @staticmethod
    def _read(cache: Tensor, blocks: _Blocks, rows: int) -> Tensor:
        """(rows, kv_heads, tokens, head_dim), a view where the blocks lie in one piece."""
        read = blocks.read(cache)
        return read.reshape(rows, -1, *read.shape[2:]).transpose(1, 2)


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))


def _causal_mask(chunk: PrefillChunk, dtype: torch.dtype) -> Tensor | None:
    """None for a first chunk, which is plainly causal; else (num_tokens, start + num_tokens)."""
    if chunk.start == 0:
        return None
    device = chunk.block_table.device
    columns = torch.arange(chunk.start + chunk.num_tokens, device=device)
    rows = torch.arange(chunk.start, chunk.start + chunk.num_tokens, device=device)
    return _additive(columns > rows.unsqueeze(1), dtype)
