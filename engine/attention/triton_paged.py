"""Attention by kernels of our own that read the paged cache in place: decode rows and prefill chunks, on NVIDIA cards.

Decode rows are tiles of one token; where they are too few to fill the card, several programs share the keys of each.
Prefill chunks are tiles of many tokens. Nothing is planned on the host but the number of tiles.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.backend import ALL_TOKENS, Attention, AttentionInputs, LayerWindows, PrefillChunk
from engine.cache.kv_cache import KVCache
from engine.triton_kernels.attend import attend, join, store

_MIN_ROWS = 16  # the least that the matrix units take
_MAX_SPLITS = 32
_SPLIT_TILES = 1  # a program's share of the keys is at least this many tiles
_PROGRAMS_PER_MULTIPROCESSOR = 2
_SPARE_SHARED_BYTES = 4096  # what the compiler adds to the tiles


@dataclass(frozen=True, slots=True)
class Card:
    """What the tiles depend on."""

    num_multiprocessors: int
    shared_bytes: int

    @classmethod
    def of(cls, device: torch.device) -> "Card":
        """Ask torch."""
        properties = torch.cuda.get_device_properties(device)
        shared_bytes = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
        return cls(properties.multi_processor_count, shared_bytes)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The shape of a program: queries by keys, and how it is compiled."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int

    def shared_bytes(self, head_dim: int, item_bytes: int) -> int:
        """Shared memory for the queries and for the keys and values of every stage."""
        return (self.rows + 2 * self.keys * self.num_stages) * _padded(head_dim) * item_bytes


CHUNK_TILES = (
    Tiles(128, 64, 4, 3), Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2), Tiles(32, 32, 4, 1),
    Tiles(16, 16, 4, 1),
)  # fmt: skip
DECODE_TILES = (
    Tiles(_MIN_ROWS, 64, 2, 3), Tiles(_MIN_ROWS, 64, 4, 2), Tiles(_MIN_ROWS, 32, 4, 2), Tiles(_MIN_ROWS, 16, 4, 1)
)  # fmt: skip
"""From the quickest (measured on an H200, heads of 128) to the smallest.

float32 starts further on: its products take registers instead.
"""


def fitting_tiles(choices: tuple[Tiles, ...], card: Card, *, head_dim: int, item_bytes: int, group: int) -> Tiles:
    """The first of the choices that fits the card's shared memory, with room for the heads of at least one token."""
    room = card.shared_bytes - _SPARE_SHARED_BYTES
    small_enough = [tiles for tiles in choices if tiles.shared_bytes(head_dim, item_bytes) <= room]
    if item_bytes > 2:
        small_enough = [tiles for tiles in small_enough if tiles.rows * tiles.keys <= 1024]
    tiles = (small_enough or [choices[-1]])[0]
    rows = max(tiles.rows, _padded(group))
    return Tiles(rows, tiles.keys, tiles.num_warps, tiles.num_stages)


@dataclass(frozen=True, slots=True)
class TritonPaged:
    """Back end for NVIDIA cards from Ampere on."""

    card: Card
    windows: LayerWindows = ALL_TOKENS
    chunk_tiles: tuple[Tiles, ...] = CHUNK_TILES
    decode_tiles: tuple[Tiles, ...] = DECODE_TILES
    name: str = "paged Triton kernels"

    @property
    def is_capturable(self) -> bool:
        """See AttentionBackend."""
        return True

    def prepare(self, inputs: AttentionInputs, cache: KVCache) -> Attention:
        """See AttentionBackend."""
        return _TritonAttention(self, inputs, cache)


class _TritonAttention:
    def __init__(self, backend: TritonPaged, inputs: AttentionInputs, cache: KVCache) -> None:
        self._backend = backend
        self._inputs = inputs
        self._cache = cache
        self._decode: _DecodeRows | None = None  # they need the number of heads, which the first layer brings
        self._chunks: _Chunks | None = None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self._cache.layer(layer)
        _store(k, v, keys, values, self._inputs.slots)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        split, window = self._inputs.num_decode, self._backend.windows.of(layer)
        if split:
            self._decode = self._decode or _DecodeRows(self._backend, self._inputs, q, keys)
            self._decode.attend(q[:split], keys, values, out[:split], window)
        if self._inputs.chunks:
            self._chunks = self._chunks or _Chunks(self._backend, self._inputs.chunks, q, keys)
            self._chunks.attend(q[split:], keys, values, out[split:], window)
        return out


class _DecodeRows:
    """One token of each sequence."""

    def __init__(self, backend: TritonPaged, inputs: AttentionInputs, q: Tensor, keys: Tensor) -> None:
        self._shape = _Shape.of(q, keys)
        self._tiles = self._shape.tiles(backend.decode_tiles, backend.card)
        self._tables, self._lengths = inputs.decode_block_tables, inputs.decode_lengths
        rows = self._lengths.shape[0]
        self._splits = _num_splits(
            programs=rows * self._shape.kv_heads,
            wanted=_PROGRAMS_PER_MULTIPROCESSOR * backend.card.num_multiprocessors,
            most_keys=self._tables.shape[1] * self._shape.block_size, split_keys=_SPLIT_TILES * self._tiles.keys,
        )  # fmt: skip
        parts = (rows, self._shape.heads, self._splits) if self._splits > 1 else (0, 0, 0)
        self._part_totals = torch.empty((*parts, q.shape[2]), dtype=torch.float32, device=q.device)
        self._part_weights = torch.empty((*parts, 2), dtype=torch.float32, device=q.device)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, window: int) -> None:
        shape, tiles, rows = self._shape, self._tiles, q.shape[0]
        attend[rows, shape.kv_heads, self._splits](
            out, self._part_totals, self._part_weights, q, keys, values, self._tables, self._lengths, self._lengths,
            rows, self._tables.stride(0), window, shape.scale, q.stride(0),
            HEADS=shape.heads, KV_HEADS=shape.kv_heads, HEAD_DIM=shape.head_dim, DIM_PADDED=_padded(shape.head_dim),
            BLOCK_SIZE=shape.block_size, BLOCK_M=tiles.rows, BLOCK_N=tiles.keys, ONE_TOKEN=True,
            WINDOWED=window > 0, SPLITS=self._splits, SPLIT_TILES=_SPLIT_TILES,
            num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip
        if self._splits > 1:
            join[rows, shape.heads](
                out, self._part_totals, self._part_weights, self._lengths, window,
                HEADS=shape.heads, HEAD_DIM=shape.head_dim, DIM_PADDED=_padded(shape.head_dim), BLOCK_N=tiles.keys,
                WINDOWED=window > 0, SPLITS=self._splits, SPLIT_TILES=_SPLIT_TILES, num_warps=4,
            )  # fmt: skip


class _Chunks:
    """Many tokens of each sequence."""

    def __init__(self, backend: TritonPaged, chunks: tuple[PrefillChunk, ...], q: Tensor, keys: Tensor) -> None:
        self._shape = _Shape.of(q, keys)
        self._tiles = self._shape.tiles(backend.chunk_tiles, backend.card)
        first_rows = [chunk.first_row - chunks[0].first_row for chunk in chunks]
        lengths = [chunk.start + chunk.num_tokens for chunk in chunks]
        num_rows = first_rows[-1] + chunks[-1].num_tokens
        numbers = torch.tensor([*first_rows, num_rows, *lengths], dtype=torch.int32, device=q.device)
        self._first_rows, self._lengths = numbers[: len(chunks) + 1], numbers[len(chunks) + 1 :]
        self._tables = torch.nn.utils.rnn.pad_sequence([chunk.block_table for chunk in chunks], batch_first=True)
        tokens_at_once = self._tiles.rows // (self._shape.heads // self._shape.kv_heads)
        self._num_tiles = num_rows // tokens_at_once + len(chunks)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, out: Tensor, window: int) -> None:
        shape, tiles = self._shape, self._tiles
        attend[self._num_tiles, shape.kv_heads, 1](
            out, out, out, q, keys, values, self._tables, self._first_rows, self._lengths,
            self._lengths.shape[0], self._tables.stride(0), window, shape.scale, q.stride(0),
            HEADS=shape.heads, KV_HEADS=shape.kv_heads, HEAD_DIM=shape.head_dim, DIM_PADDED=_padded(shape.head_dim),
            BLOCK_SIZE=shape.block_size, BLOCK_M=tiles.rows, BLOCK_N=tiles.keys, ONE_TOKEN=False,
            WINDOWED=window > 0, SPLITS=1, SPLIT_TILES=_SPLIT_TILES,
            num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shape:
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    item_bytes: int

    @classmethod
    def of(cls, q: Tensor, keys: Tensor) -> "_Shape":
        assert q.stride()[1:] == (q.shape[2], 1), "the heads of a token lie side by side"
        return cls(q.shape[1], keys.shape[2], q.shape[2], keys.shape[1], q.element_size())

    @property
    def scale(self) -> float:
        """Scores in base 2, divided by the root of head_dim."""
        return math.log2(math.e) / math.sqrt(self.head_dim)

    def tiles(self, choices: tuple[Tiles, ...], card: Card) -> Tiles:
        group = self.heads // self.kv_heads
        return fitting_tiles(choices, card, head_dim=self.head_dim, item_bytes=self.item_bytes, group=group)


def _store(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    rows, kv_heads, head_dim = k.shape
    store[rows,](
        k, v, keys, values, slots, k.stride(0), v.stride(0),
        KV_HEADS=kv_heads, HEAD_DIM=head_dim, HEADS_PADDED=_padded(kv_heads), DIM_PADDED=_padded(head_dim),
    )  # fmt: skip


def _num_splits(*, programs: int, wanted: int, most_keys: int, split_keys: int) -> int:
    """A power of two that fills the card, unless the keys are too few to share."""
    useful = min(-(-wanted // programs), -(-most_keys // split_keys), _MAX_SPLITS)
    return 1 << (useful - 1).bit_length() if useful > 1 else 1


def _padded(size: int) -> int:
    """The next power of two, at least 16: what a matrix product takes."""
    return max(1 << (size - 1).bit_length(), 16)
