"""Attention over the paged cache against a brute force in float64, on layouts that nobody would think of.

Unused slots hold large finite values: a back end that reads what it should not is found out. NaN cannot stand there:
the pages come zeroed from the kernel, and only keys and values of computed tokens are ever written; a masked slot is
multiplied by a probability of exactly 0, which makes 0 of every finite number.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, AttentionInputs, PrefillChunk
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.reference import ReferenceAttention
from engine.attention.select import select_backend
from engine.cache.kv_cache import KVCache

NUM_LAYERS = 2
BACKENDS = [GatherSdpa(), ReferenceAttention()]
GARBAGE = 3e4  # as large as float16 can hold


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
    head_dim: int
    contiguous: bool
    seed: int

    @property
    def parts(self) -> list[Part]:
        decodes = [Part(start, 1, is_decode=True) for start in self.decode_starts]
        return decodes + [Part(start, count, is_decode=False) for start, count in self.chunks]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    decode_starts = draw(st.lists(st.integers(0, 90), max_size=5))
    min_chunks = 0 if decode_starts else 1
    chunk = st.tuples(st.one_of(st.just(0), st.integers(0, 70)), st.integers(1, 40))
    return Layout(
        decode_starts=tuple(decode_starts),
        chunks=tuple(draw(st.lists(chunk, min_size=min_chunks, max_size=3))),
        block_size=draw(st.sampled_from([16, 32, 256])),
        heads=draw(st.sampled_from([(4, 4), (4, 2), (6, 2), (3, 1)])),
        head_dim=draw(st.sampled_from([8, 24])),
        contiguous=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


class Scene:
    """A cache filled with garbage, the past of every sequence written into its blocks, and one new batch."""

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        self.parts, self.dtype = layout.parts, dtype
        self._generator = torch.Generator().manual_seed(layout.seed)
        heads, kv_heads = layout.heads
        self.block_size = layout.block_size
        sizes = [-(-part.length // layout.block_size) for part in self.parts]
        num_blocks = 1 + sum(sizes) + 3
        shape = ModelArchitecture(
            family="llama", name="tiny", vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=NUM_LAYERS,
            num_heads=heads, num_kv_heads=kv_heads, head_dim=layout.head_dim, rms_norm_eps=1e-6, rope_theta=1e4,
            max_position_embeddings=256,
        )  # fmt: skip
        self.cache = KVCache(
            shape, num_blocks=num_blocks, block_size=layout.block_size, dtype=dtype, device=torch.device("cpu")
        )
        order = torch.arange(1, num_blocks)
        if not layout.contiguous:
            order = order[torch.randperm(len(order), generator=self._generator)]
        self.tables = [table.tolist() for table in order[: sum(sizes)].split(sizes)]
        self.past = [self._draw(NUM_LAYERS, 2, part.start, kv_heads, layout.head_dim) for part in self.parts]
        self._fill()
        rows = sum(part.num_tokens for part in self.parts)
        self.q = self._draw(NUM_LAYERS, rows, heads, layout.head_dim)
        self.k, self.v = (self._draw(NUM_LAYERS, rows, kv_heads, layout.head_dim) for _ in range(2))

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self.dtype)

    def _fill(self) -> None:
        for layer in range(NUM_LAYERS):
            for side, tensor in enumerate(self.cache.layer(layer)):
                signs = torch.randint(0, 2, tensor.shape, generator=self._generator) * 2 - 1
                tensor.copy_(signs * GARBAGE)
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
                chunks.append(PrefillChunk(first_row, part.num_tokens, part.start, torch.tensor(table)))
            first_row += part.num_tokens
        width = max((len(table) for _, table in decodes), default=0)
        padded = [table + [0] * (width - len(table)) for _, table in decodes]
        return AttentionInputs(
            slots=torch.tensor(slots),
            num_decode=len(decodes),
            decode_block_tables=torch.tensor(padded, dtype=torch.int64),
            decode_lengths=torch.tensor([part.length for part, _ in decodes], dtype=torch.int64),
            chunks=tuple(chunks),
        )

    def computed(self, backend: AttentionBackend) -> Tensor:
        """(layers, rows, heads, head_dim)"""
        attend = backend.prepare(self.inputs, self.cache)
        layers = [attend(layer, self.q[layer], self.k[layer], self.v[layer]) for layer in range(NUM_LAYERS)]
        assert {tensor.dtype for tensor in layers} == {self.dtype}
        return torch.stack(layers)

    def expected(self) -> Tensor:
        """By the definition, sequence by sequence, without a cache, in float64."""
        return torch.stack([self._expected_layer(layer) for layer in range(NUM_LAYERS)])

    def _expected_layer(self, layer: int) -> Tensor:
        outputs, row = [], 0
        for part, past in zip(self.parts, self.past, strict=True):
            new = slice(row, row + part.num_tokens)
            keys = torch.cat((past[layer, 0], self.k[layer, new])).double()
            values = torch.cat((past[layer, 1], self.v[layer, new])).double()
            for offset in range(part.num_tokens):
                seen = part.start + offset + 1
                outputs.append(attend_by_hand(self.q[layer, row + offset].double(), keys[:seen], values[:seen]))
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


TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@given(layout=layouts(), dtype=st.sampled_from(list(TOLERANCES)))
@example(Layout((), ((0, 16),), 16, (4, 2), 8, contiguous=True, seed=1), torch.float32)
@example(Layout((15, 16, 31), ((16, 1), (0, 40)), 16, (4, 2), 8, contiguous=False, seed=2), torch.float32)
@example(Layout((0,), (), 256, (3, 1), 24, contiguous=True, seed=3), torch.bfloat16)
@settings(max_examples=60, deadline=None)
def test_attention_is_the_definition(backend: AttentionBackend, layout: Layout, dtype: torch.dtype) -> None:
    scene = Scene(layout, dtype)
    with torch.inference_mode():
        found = scene.computed(backend)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found.double(), scene.expected(), rtol=tolerance, atol=4 * tolerance)


@given(layout=layouts())
@settings(max_examples=30, deadline=None)
def test_both_leave_the_same_cache(layout: Layout) -> None:
    """Only the slots of the new rows change, to exactly their keys and values."""
    scenes = [Scene(layout, torch.float32) for _ in BACKENDS]
    before = [tensor.clone() for layer in range(NUM_LAYERS) for tensor in scenes[0].cache.layer(layer)]
    for scene, backend in zip(scenes, BACKENDS, strict=True):
        scene.computed(backend)
    slots = scenes[0].inputs.slots
    written = [x[layer] for layer in range(NUM_LAYERS) for x in (scenes[0].k, scenes[0].v)]
    for scene in scenes:
        after = [tensor for layer in range(NUM_LAYERS) for tensor in scene.cache.layer(layer)]
        for old, new, rows in zip(before, after, written, strict=True):
            old_slots = old.flatten(0, 1).clone()
            old_slots[slots] = rows
            assert torch.equal(new.flatten(0, 1), old_slots)


def test_a_cpu_gets_gather_and_sdpa() -> None:
    assert select_backend(torch.device("cpu")).name == "gather + SDPA"
