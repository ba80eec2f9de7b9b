"""The plain definition of attention over the cache, in float32, row by row: for tests and self-tests."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.backend import ALL_TOKENS, Attention, AttentionInputs, LayerWindows
from engine.cache.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class ReferenceAttention:
    """softmax(q k^T / sqrt(head_dim)) v for every row by itself."""

    windows: LayerWindows = ALL_TOKENS
    name: str = "reference"

    @property
    def is_capturable(self) -> bool:
        """See AttentionBackend."""
        return False

    def prepare(self, inputs: AttentionInputs, cache: KVCache) -> Attention:
        """See AttentionBackend."""
        rows = [(table, int(length)) for table, length in zip(inputs.decode_block_tables, inputs.decode_lengths)]  # noqa: B905
        for chunk in inputs.chunks:
            rows += [(chunk.block_table, chunk.start + offset + 1) for offset in range(chunk.num_tokens)]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.store(layer, k, v, inputs.slots)
            window = self.windows.of(layer)
            outputs = [
                _attend_row(query, *cache.layer(layer), *row, window) for query, row in zip(q, rows, strict=True)
            ]
            return torch.stack(outputs).to(q.dtype)

        return attend


def _attend_row(q: Tensor, k_cache: Tensor, v_cache: Tensor, table: Tensor, length: int, window: int) -> Tensor:
    """One query (heads, head_dim) over the first `length` tokens of a block table, or the last `window` of them."""
    seen = slice(max(length - window, 0) if window else 0, length)
    keys, values = (cache[table].flatten(0, 1)[seen].float() for cache in (k_cache, v_cache))
    repeats = q.shape[0] // keys.shape[1]
    keys, values = (x.repeat_interleave(repeats, dim=1) for x in (keys, values))
    scores = torch.einsum("hd,thd->ht", q.float(), keys) / q.shape[-1] ** 0.5
    return torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values)
