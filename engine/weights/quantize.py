"""From ggml's quantised blocks to plain tensors. Knows bytes and shapes, no files and no names.

Block layouts follow the structs of ggml-common.h, formulas the reference `dequantize_row_*` of ggml-quants.c. All
arithmetic is in float32 and rounded once to the wanted dtype.
"""

from collections.abc import Callable, Mapping

import torch

from engine.errors import ModelError
from engine.gguf_file import TensorKind

# Below 32,768 elements torch runs an operation in the calling thread. Its thread team would save a tenth of a second
# on a quiet machine, and cost twenty on a busy one, where each of thousands of barriers waits for the other thread.
SLICE_BLOCKS = 1000
QUANTIZED_BLOCK_SIZE = 32

_Unpack = Callable[[torch.Tensor, torch.Tensor], None]


def _halves(blocks: torch.Tensor, count: int) -> torch.Tensor:
    """The float16 fields that begin every block, as float32 of shape (blocks, count)."""
    return blocks[:, : 2 * count].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """(blocks, 16) bytes to (blocks, 32) float32 values: the low halves come first, then the high ones."""
    values = torch.empty(packed.shape[0], QUANTIZED_BLOCK_SIZE, dtype=torch.uint8)
    torch.bitwise_and(packed, 0x0F, out=values[:, :16])
    torch.bitwise_right_shift(packed, 4, out=values[:, 16:])
    return values.float()


def _unpack_q4_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(_nibbles(blocks[:, 2:]).sub_(8).mul_(_halves(blocks, 1)))


def _unpack_q4_1(blocks: torch.Tensor, out: torch.Tensor) -> None:
    scale, minimum = _halves(blocks, 2).split(1, dim=1)
    out.copy_(_nibbles(blocks[:, 4:]).mul_(scale).add_(minimum))


def _unpack_q8_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8).float().mul_(_halves(blocks, 1)))


_QUANTIZED: Mapping[str, _Unpack] = {"Q4_0": _unpack_q4_0, "Q4_1": _unpack_q4_1, "Q8_0": _unpack_q8_0}
_PLAIN: Mapping[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

SUPPORTED_KINDS = frozenset(_QUANTIZED) | frozenset(_PLAIN)


def dequantize(raw: torch.Tensor, kind: TensorKind, dtype: torch.dtype) -> torch.Tensor:
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
    unpack = _QUANTIZED.get(kind.name)
    if unpack is None:
        raise ModelError(unsupported_kind(kind.name))
    blocks = raw.view(-1, kind.block_bytes)
    out = torch.empty(blocks.shape[0], kind.block_size, dtype=dtype)
    for part, out_part in zip(blocks.split(SLICE_BLOCKS), out.split(SLICE_BLOCKS), strict=True):
        unpack(part, out_part)
    return out.view(-1)


def unsupported_kind(kind_name: str) -> str:
    """The sentence for a quantisation that cannot be read."""
    return (
        f"The model is quantised as {kind_name}, which is not supported yet. "
        "Choose a file in Q4_0, Q4_1, Q8_0, F16 or F32."
    )
