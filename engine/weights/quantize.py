"""From ggml's quantised blocks to plain tensors. Knows bytes and shapes, no files and no names.

Every block is cut into parts, and its elements are `value * factor + offset` with a factor and an offset for each part.
Block layouts follow the structs of ggml-common.h, formulas the reference `dequantize_row_*` of ggml-quants.c. All
arithmetic is in float32 and rounded once to the wanted dtype.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import ModelError
from engine.gguf_file import TensorKind
from engine.weights.gguf_layout import unsupported_kind

# Below 32,768 elements torch runs an operation in the calling thread. Its thread team would save a tenth of a second
# on a quiet machine, and cost twenty on a busy one, where each of thousands of barriers waits for the other thread.
SLICE_ELEMENTS = 32_000
# Factors are few to each block, so they are worked out for several slices at once.
SLICES_PER_ROUND = 15


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one kind is decoded.

    Attributes:
        values: from blocks (n, bytes) to float32 numbers of shape (n, parts, elements).
        factors: from blocks to factors and offsets, both (n, parts, 1); no offset stands for 0.
    """

    values: Callable[[Tensor], Tensor]
    factors: Callable[[Tensor], tuple[Tensor, Tensor | None]]


def _halves(blocks: Tensor, start: int, stop: int) -> Tensor:
    """Fields of float16 at these bytes of every block, as float32 of shape (blocks, fields, 1)."""
    return blocks[:, start:stop].contiguous().view(torch.float16).float().unsqueeze(2)


def _nibbles(packed: Tensor) -> Tensor:
    """Bytes (n, groups, size) to float32 (n, groups, 2, size): low halves first, then high ones."""
    values = torch.empty(*packed.shape[:2], 2, packed.shape[2])
    values[:, :, 0].copy_(packed.bitwise_and(0x0F))
    values[:, :, 1].copy_(packed.bitwise_right_shift(4))
    return values


def _bits_from_4(packed: Tensor, masks: Tensor) -> Tensor:
    """The bits that each mask cuts out of a byte, as float32, moved to where the fifth bit of a number stands."""
    lowest = masks.bitwise_and(-masks.to(torch.int16)).float()
    return packed.bitwise_and(masks).float().mul_(16 / lowest)


_SINGLE_BITS = torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8)
_BIT_PAIRS = torch.tensor([3 << bit for bit in (0, 2, 4, 6)], dtype=torch.uint8)


def _values_4(blocks: Tensor, start: int) -> Tensor:
    """Numbers of 4 bits in 16 bytes."""
    return _nibbles(blocks[:, None, start:]).view(-1, 1, 32)


def _values_5(blocks: Tensor, start: int) -> Tensor:
    """Numbers of 5 bits: 4 bytes of fifth bits, then 16 bytes of the rest."""
    fifth = _bits_from_4(blocks[:, start : start + 4].unsqueeze(2), _SINGLE_BITS)
    return _values_4(blocks, start + 4).add_(fifth.view(-1, 1, 32))


def _scale(blocks: Tensor) -> tuple[Tensor, None]:
    return _halves(blocks, 0, 2), None


def _scale_and_minimum(blocks: Tensor) -> tuple[Tensor, Tensor]:
    scale, minimum = _halves(blocks, 0, 4).split(1, dim=1)
    return scale, minimum


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The eight parts of a Q4_K or Q5_K block are multiplied by one number and lowered by another.

    Both have six bits, packed into bytes 4 to 15: the first four of each stand in the low bits of bytes of their own;
    of the last four the low halves stand in bytes 12 to 15, and the rest in the two top bits of the others.
    """
    packed = blocks[:, 4:16].unflatten(1, (3, 4))
    own, shared = packed[:, :2], packed[:, 2]
    low = torch.stack((shared.bitwise_and(0x0F), shared.bitwise_right_shift(4)), dim=1)
    last = own.bitwise_right_shift(2).bitwise_and_(0x30).bitwise_or_(low)
    factors = torch.cat((own.bitwise_and(0x3F), last), dim=2).float().mul_(_halves(blocks, 0, 4))
    scale, minimum = factors.unsqueeze(3).unbind(1)
    return scale, minimum.neg()


def _values_q4_k(blocks: Tensor) -> Tensor:
    return _nibbles(blocks[:, 16:].unflatten(1, (4, 32))).view(-1, 8, 32)


def _values_q5_k(blocks: Tensor) -> Tensor:
    fifth = _bits_from_4(blocks[:, 16:48].unsqueeze(1), _SINGLE_BITS.unsqueeze(1))
    return _nibbles(blocks[:, 48:].unflatten(1, (4, 32))).view(-1, 8, 32).add_(fifth)


def _values_q6_k(blocks: Tensor) -> Tensor:
    top = _bits_from_4(blocks[:, 128:192].unflatten(1, (2, 1, 32)), _BIT_PAIRS.unsqueeze(1))
    low = _nibbles(blocks[:, :128].unflatten(1, (2, 64)))
    return low.view(-1, 16, 16).add_(top.view(-1, 16, 16)).sub_(32)


def _scales_q6_k(blocks: Tensor) -> tuple[Tensor, None]:
    return blocks[:, 192:208].view(torch.int8).float().unsqueeze(2).mul_(_halves(blocks, 208, 210)), None


_QUANTIZED: Mapping[str, _Layout] = {
    "Q4_0": _Layout(lambda blocks: _values_4(blocks, 2).sub_(8), _scale),
    "Q4_1": _Layout(lambda blocks: _values_4(blocks, 4), _scale_and_minimum),
    "Q5_0": _Layout(lambda blocks: _values_5(blocks, 2).sub_(16), _scale),
    "Q5_1": _Layout(lambda blocks: _values_5(blocks, 4), _scale_and_minimum),
    "Q8_0": _Layout(lambda blocks: blocks[:, None, 2:].view(torch.int8).float(), _scale),
    "Q4_K": _Layout(_values_q4_k, _scales_and_minima),
    "Q5_K": _Layout(_values_q5_k, _scales_and_minima),
    "Q6_K": _Layout(_values_q6_k, _scales_q6_k),
}
_PLAIN: Mapping[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

SUPPORTED_KINDS = frozenset(_QUANTIZED) | frozenset(_PLAIN)


def dequantize(raw: Tensor, kind: TensorKind, dtype: torch.dtype) -> Tensor:
    """Decode one tensor's bytes.

    Args:
        raw: its bytes, uint8 of shape (num_bytes,).
        kind: how they are stored.
        dtype: a floating type to round to.

    Returns:
        A tensor of shape (elements,) with memory of its own.

    Raises:
        ModelError: the quantisation is not supported.
    """
    if kind.name in _PLAIN:
        return raw.view(_PLAIN[kind.name]).to(dtype, copy=True)
    layout = _QUANTIZED.get(kind.name)
    if layout is None:
        raise ModelError(unsupported_kind(kind.name))
    blocks = raw.view(-1, kind.block_bytes)
    out = torch.empty(blocks.shape[0], kind.block_size, dtype=dtype)
    slice_blocks = SLICE_ELEMENTS // kind.block_size
    round_blocks = SLICES_PER_ROUND * slice_blocks
    for part, out_part in zip(blocks.split(round_blocks), out.split(round_blocks), strict=True):
        _decode(layout, part, out_part, slice_blocks)
    return out.view(-1)


def _decode(layout: _Layout, blocks: Tensor, out: Tensor, slice_blocks: int) -> None:
    factors, offsets = layout.factors(blocks)
    for start in range(0, blocks.shape[0], slice_blocks):
        rows = slice(start, start + slice_blocks)
        values = layout.values(blocks[rows]).mul_(factors[rows])
        if offsets is not None:
            values.add_(offsets[rows])
        out[rows].copy_(values.flatten(1))
