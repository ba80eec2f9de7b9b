"""Layouts of a paged cache that nobody would think of, and attention over them by a brute force in float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, AttentionInputs, LayerWindows, PrefillChunk
from engine.cache.kv_cache import KVCache

NUM_LAYERS = 2
HEAD_DIM = 24
GARBAGE = 3e4  # as large as float16 can hold
HEADS = [(4, 4), (4, 2), (6, 2), (3, 1), (8, 2), (7, 1)]


@dataclass(frozen=True)
class Part:
    """Rows of one sequence: `start` tokens are in the cache, `num_tokens` are new; a decode is one new token."""

    start: int
    num_tokens: int
    is_decode: bool

    @property
    def length(self) -> int:
        return self.start + self.num_tokens


@dataclass(frozen=True)
class Layout:
    decode_starts: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    block_size: int
    heads: tuple[int, int]
    contiguous: bool
    seed: int
    window: int = 0  # of the second layer
    head_dim: int = HEAD_DIM

    @property
    def parts(self) -> list[Part]:
        decodes = [Part(start, 1, is_decode=True) for start in self.decode_starts]
        return decodes + [Part(start, count, is_decode=False) for start, count in self.chunks]


@st.composite
def layouts(
    draw: st.DrawFn, *, max_decodes: int = 5, max_chunks: int = 3, head_dims: tuple[int, ...] = (HEAD_DIM,)
) -> Layout:
    """Decode rows over up to 91 tokens, chunks of up to 40 tokens behind up to 70."""
    decode_starts = draw(st.lists(st.integers(0, 90), max_size=max_decodes))
    min_chunks = 0 if decode_starts else 1
    chunk = st.tuples(st.one_of(st.just(0), st.integers(0, 70)), st.integers(1, 40))
    return Layout(
        decode_starts=tuple(decode_starts),
        chunks=tuple(draw(st.lists(chunk, min_size=min_chunks, max_size=max_chunks))),
        block_size=draw(st.sampled_from([16, 32, 256])),
        heads=draw(st.sampled_from(HEADS)),
        contiguous=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
        window=draw(st.one_of(st.just(0), st.integers(1, 100))),
        head_dim=draw(st.sampled_from(head_dims)),
    )


class Scene:
    """A cache filled with garbage, the past of every sequence written into its blocks, and one new batch."""

    def __init__(
        self, layout: Layout, dtype: torch.dtype, *, device: torch.device | None = None, garbage: float = GARBAGE,
        spare_blocks: int = 3, num_layers: int = NUM_LAYERS,
    ) -> None:  # fmt: skip
        self.parts, self.dtype, self.window = layout.parts, dtype, layout.window
        self.device = device or torch.device("cpu")
        self._garbage, self._num_layers, head_dim = garbage, num_layers, layout.head_dim
        self._generator = torch.Generator().manual_seed(layout.seed)
        heads, kv_heads = layout.heads
        self.block_size = layout.block_size
        sizes = [-(-part.length // layout.block_size) for part in self.parts]
        num_blocks = 1 + sum(sizes) + spare_blocks
        shape = ModelArchitecture(
            family="llama", name="tiny", vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=num_layers,
            num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, rms_norm_eps=1e-6, rope_theta=1e4,
            max_position_embeddings=256,
        )  # fmt: skip
        self.cache = KVCache(
            shape, num_blocks=num_blocks, block_size=layout.block_size, dtype=dtype, device=self.device
        )
        order = torch.arange(1, num_blocks)[-sum(sizes) - 3 :]  # the last blocks of a large pool
        if not layout.contiguous:
            order = order[torch.randperm(len(order), generator=self._generator)]
        self.tables = [table.tolist() for table in order[: sum(sizes)].split(sizes)]
        self.past = [self._draw(num_layers, 2, part.start, kv_heads, head_dim) for part in self.parts]
        self._fill()
        rows = sum(part.num_tokens for part in self.parts)
        self.q = self._draw(num_layers, rows, heads, head_dim)
        self.k, self.v = (self._draw(num_layers, rows, kv_heads, head_dim) for _ in range(2))

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(device=self.device, dtype=self.dtype)

    def _fill(self) -> None:
        for layer in range(self._num_layers):
            for side, tensor in enumerate(self.cache.layer(layer)):
                used = tensor[-sum(map(len, self.tables)) - 3 :]
                signs = torch.randint(0, 2, used.shape, generator=self._generator) * 2 - 1
                used.copy_(signs * self._garbage)
                for part, table, past in zip(self.parts, self.tables, self.past, strict=True):
                    slots = self._slots(table, range(part.start))
                    tensor.view(-1, *tensor.shape[2:])[slots] = past[layer, side]

    def _slots(self, table: list[int], positions: range) -> list[int]:
        return [table[at // self.block_size] * self.block_size + at % self.block_size for at in positions]

    @property
    def inputs(self) -> AttentionInputs:
        slots, chunks, first_row = [], [], 0
        decodes = [(part, table) for part, table in zip(self.parts, self.tables, strict=True) if part.is_decode]
        for part, table in zip(self.parts, self.tables, strict=True):
            slots += self._slots(table, range(part.start, part.length))
            if not part.is_decode:
                chunks.append(PrefillChunk(first_row, part.num_tokens, part.start, self._tensor(table)))
            first_row += part.num_tokens
        width = max((len(table) for _, table in decodes), default=0)
        padded = [table + [0] * (width - len(table)) for _, table in decodes]
        return AttentionInputs(
            slots=self._tensor(slots),
            num_decode=len(decodes),
            decode_block_tables=self._tensor(padded),
            decode_lengths=self._tensor([part.length for part, _ in decodes]),
            chunks=tuple(chunks),
        )

    def _tensor(self, numbers: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self.device)

    def computed(self, make_backend: Callable[[LayerWindows], AttentionBackend]) -> Tensor:
        """(layers, rows, heads, head_dim)"""
        backend = make_backend(LayerWindows((None, self.window or None)))
        attend = backend.prepare(self.inputs, self.cache)
        layers = [attend(layer, self.q[layer], self.k[layer], self.v[layer]) for layer in range(self._num_layers)]
        assert {tensor.dtype for tensor in layers} == {self.dtype}
        return torch.stack(layers)

    def expected(self) -> Tensor:
        """By the definition, sequence by sequence, without a cache, in float64."""
        return torch.stack([self._expected_layer(layer) for layer in range(self._num_layers)])

    def _expected_layer(self, layer: int) -> Tensor:
        outputs, row = [], 0
        window = self.window if layer == 1 else 0
        for part, past in zip(self.parts, self.past, strict=True):
            new = slice(row, row + part.num_tokens)
            keys = torch.cat((past[layer, 0], self.k[layer, new])).double()
            values = torch.cat((past[layer, 1], self.v[layer, new])).double()
            for offset in range(part.num_tokens):
                end = part.start + offset + 1
                seen = slice(max(end - window, 0) if window else 0, end)
                outputs.append(attend_by_hand(self.q[layer, row + offset].double(), keys[seen], values[seen]))
            row += part.num_tokens
        return torch.stack(outputs)


def attend_by_hand(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """q (heads, head_dim), keys and values (tokens, kv_heads, head_dim)."""
    heads, head_dim = q.shape
    share = heads // keys.shape[1]
    out = torch.empty_like(q)
    for head in range(heads):
        scores = keys[:, head // share] @ q[head] / math.sqrt(head_dim)
        weights = (scores - scores.max()).exp()
        out[head] = weights @ values[:, head // share] / weights.sum()
    return out
