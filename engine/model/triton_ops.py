"""LayerOps by kernels of our own on NVIDIA cards: one launch where torch needs three to ten."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.triton_kernels import rows

_GATE_AT_ONCE = 1024
_ROTATED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class TritonOps:
    """Kernels in Triton, in any floating-point format."""

    architecture: ModelArchitecture

    def add_norm(self, hidden: Tensor, delta: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See LayerOps."""
        num_rows, size = hidden.shape
        total = hidden if delta is None else torch.empty_like(hidden)
        normed = torch.empty_like(hidden)
        padded = _power_of_two(size)
        if num_rows:
            rows.add_norm[num_rows,](
                total, normed, hidden, delta, weight, self.architecture.rms_norm_eps,
                SIZE=size, SIZE_PADDED=padded, HAS_DELTA=delta is not None, num_warps=min(max(padded // 512, 1), 16),
            )  # fmt: skip
        return total, normed

    def rotate(
        self, heads: Tensor, angles: tuple[Tensor, Tensor], norms: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """See LayerOps; in place."""
        shape = self.architecture
        turned = shape.num_heads + shape.num_kv_heads
        q_norm, k_norm = norms or (None, None)
        rows.rotate[heads.shape[0], -(-turned // _ROTATED_AT_ONCE)](
            heads, *angles, q_norm, k_norm, heads.stride(0), shape.rms_norm_eps,
            Q_HEADS=shape.num_heads, TURNED_HEADS=turned, HEAD_DIM=shape.head_dim,
            HALF_PADDED=_power_of_two(shape.head_dim // 2), HEADS_AT_ONCE=_ROTATED_AT_ONCE,
            HAS_NORMS=norms is not None, num_warps=2,
        )  # fmt: skip
        return heads[:, : shape.num_heads], heads[:, shape.num_heads : turned]

    def gate(self, gate_up: Tensor) -> Tensor:
        """See LayerOps."""
        num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((num_rows, size), dtype=gate_up.dtype, device=gate_up.device)
        rows.gate[num_rows, -(-size // _GATE_AT_ONCE)](out, gate_up, SIZE=size, AT_ONCE=_GATE_AT_ONCE, num_warps=4)
        return out


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
