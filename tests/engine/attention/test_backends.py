"""Attention over the paged cache against a brute force in float64, on layouts that nobody would think of.

Unused slots hold large finite values: a back end that reads what it should not is found out. NaN cannot stand there:
the pages come zeroed from the kernel, and only keys and values of computed tokens are ever written; a masked slot is
multiplied by a probability of exactly 0, which makes 0 of every finite number.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, AttentionInputs, LayerWindows, PrefillChunk
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.native_paged import NativePaged
from engine.attention.reference import ReferenceAttention
from engine.cache.kv_cache import KVCache
from engine.native import load_kernels
from engine.native.kernels import Kernels

NUM_LAYERS = 2
HEAD_DIM = 24


@functools.cache
def kernels() -> Kernels:
    loaded = load_kernels(head_dim=HEAD_DIM, dtype=torch.bfloat16, device=torch.device("cpu"))
    assert loaded is not None
    return loaded


def native_paged(windows: LayerWindows) -> NativePaged:
    return NativePaged(kernels(), windows)


ALL_DTYPES = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Tolerances."""

BACKENDS = {
    "gather": (GatherSdpa, list(ALL_DTYPES)),
    "reference": (ReferenceAttention, list(ALL_DTYPES)),
    "native": (native_paged, [torch.bfloat16]),
}
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
    contiguous: bool
    seed: int
    window: int = 0  # of the second layer

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
        heads=draw(st.sampled_from([(4, 4), (4, 2), (6, 2), (3, 1), (8, 2), (7, 1)])),
        contiguous=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
        window=draw(st.one_of(st.just(0), st.integers(1, 100))),
    )


class Scene:
    """A cache filled with garbage, the past of every sequence written into its blocks, and one new batch."""

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        self.parts, self.dtype, self.window = layout.parts, dtype, layout.window
        self._generator = torch.Generator().manual_seed(layout.seed)
        heads, kv_heads = layout.heads
        self.block_size = layout.block_size
        sizes = [-(-part.length // layout.block_size) for part in self.parts]
        num_blocks = 1 + sum(sizes) + 3
        shape = ModelArchitecture(
            family="llama", name="tiny", vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=NUM_LAYERS,
            num_heads=heads, num_kv_heads=kv_heads, head_dim=HEAD_DIM, rms_norm_eps=1e-6, rope_theta=1e4,
            max_position_embeddings=256,
        )  # fmt: skip
        self.cache = KVCache(
            shape, num_blocks=num_blocks, block_size=layout.block_size, dtype=dtype, device=torch.device("cpu")
        )
        order = torch.arange(1, num_blocks)
        if not layout.contiguous:
            order = order[torch.randperm(len(order), generator=self._generator)]
        self.tables = [table.tolist() for table in order[: sum(sizes)].split(sizes)]
        self.past = [self._draw(NUM_LAYERS, 2, part.start, kv_heads, HEAD_DIM) for part in self.parts]
        self._fill()
        rows = sum(part.num_tokens for part in self.parts)
        self.q = self._draw(NUM_LAYERS, rows, heads, HEAD_DIM)
        self.k, self.v = (self._draw(NUM_LAYERS, rows, kv_heads, HEAD_DIM) for _ in range(2))

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

    def computed(self, make_backend: Callable[[LayerWindows], AttentionBackend]) -> Tensor:
        """(layers, rows, heads, head_dim)"""
        backend = make_backend(LayerWindows((None, self.window or None)))
        attend = backend.prepare(self.inputs, self.cache)
        layers = [attend(layer, self.q[layer], self.k[layer], self.v[layer]) for layer in range(NUM_LAYERS)]
        assert {tensor.dtype for tensor in layers} == {self.dtype}
        return torch.stack(layers)

    def expected(self) -> Tensor:
        """By the definition, sequence by sequence, without a cache, in float64."""
        return torch.stack([self._expected_layer(layer) for layer in range(NUM_LAYERS)])

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


@pytest.mark.parametrize("name", BACKENDS)
@given(data=st.data(), layout=layouts())
@example(None, Layout((), ((0, 16),), 16, (4, 2), contiguous=True, seed=1))
@example(None, Layout((15, 16, 31), ((16, 1), (0, 40)), 16, (4, 2), contiguous=False, seed=2, window=8))
@example(None, Layout((0,), (), 256, (3, 1), contiguous=True, seed=3, window=1))
@settings(max_examples=60, deadline=None)
def test_attention_is_the_definition(name: str, data: st.DataObject | None, layout: Layout) -> None:
    make_backend, dtypes = BACKENDS[name]
    dtype = dtypes[0] if data is None else data.draw(st.sampled_from(dtypes))
    scene = Scene(layout, dtype)
    with torch.inference_mode():
        found = scene.computed(make_backend)
    tolerance = ALL_DTYPES[dtype]
    torch.testing.assert_close(found.double(), scene.expected(), rtol=tolerance, atol=4 * tolerance)


@given(layout=layouts())
@settings(max_examples=30, deadline=None)
def test_all_leave_the_same_cache(layout: Layout) -> None:
    """Only the slots of the new rows change, to exactly their keys and values."""
    scenes = [Scene(layout, torch.bfloat16) for _ in BACKENDS]
    before = [tensor.clone() for layer in range(NUM_LAYERS) for tensor in scenes[0].cache.layer(layer)]
    for scene, (make_backend, _) in zip(scenes, BACKENDS.values(), strict=True):
        scene.computed(make_backend)
    slots = scenes[0].inputs.slots
    written = [x[layer] for layer in range(NUM_LAYERS) for x in (scenes[0].k, scenes[0].v)]
    for scene in scenes:
        after = [tensor for layer in range(NUM_LAYERS) for tensor in scene.cache.layer(layer)]
        for old, new, rows in zip(before, after, written, strict=True):
            old_slots = old.flatten(0, 1).clone()
            old_slots[slots] = rows
            assert torch.equal(new.flatten(0, 1), old_slots)


def test_window_of_a_layer() -> None:
    windows = LayerWindows((None, 8, None))
    assert [windows.of(layer) for layer in range(3)] == [0, 8, 0]
    assert windows.distinct == {0, 8}
    assert (LayerWindows().of(5), LayerWindows().distinct) == (0, {0})
