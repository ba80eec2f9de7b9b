"""Matrix products of the decoder. On a CPU, oneDNN keeps each weight in the layout its kernels read."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Linear(Protocol):
    """x (tokens, in) -> (tokens, out)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply by the weight and add the bias."""


@dataclass(frozen=True, slots=True)
class DenseLinear:
    """A plain weight (out, in) and an optional bias (out,)."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """See Linear."""
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight reordered once for oneDNN; without this every call pays for the reordering again.

    `min_rows` is 2 where the matrix unit (AMX) has no path for a single row: two equal rows then take
    0.4 to 1.0 of the time of one, by shape.
    """

    packed: Tensor
    bias: Tensor | None
    min_rows: int

    def __call__(self, x: Tensor) -> Tensor:
        """See Linear."""
        rows = x.shape[0]
        if rows < self.min_rows:
            x = x.expand(self.min_rows, -1).contiguous()
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")  # noqa: SLF001
        return y[:rows]


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The quickest form of a weight (out, in) on its device. The caller drops its own reference."""
    if not _packs(weight):
        return DenseLinear(weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)  # noqa: SLF001
    return PackedLinear(packed, bias, min_rows=2 if torch.cpu._is_amx_tile_supported() else 1)  # noqa: SLF001


_TYPICAL_ROWS = 16  # oneDNN picks the layout for this many rows; measured equal from 2 to 128


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN takes this weight: bf16 on a CPU that multiplies bf16 by itself."""
    if weight.device.type != "cpu" or weight.dtype is not torch.bfloat16:
        return False
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
