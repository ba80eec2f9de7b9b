"""What a layer does between its matrix products: norms, rotation, gate. One way for every device, one for CPUs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engine.architecture import ModelArchitecture
from engine.model.rotary import rotate

if TYPE_CHECKING:
    from engine.native.kernels import Kernels


class LayerOps(Protocol):
    """The steps of a layer on (tokens, size) tensors."""

    def add_norm(self, hidden: Tensor, delta: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden + delta, the residual stream, and its RMSNorm."""

    def rotate(
        self, heads: Tensor, angles: tuple[Tensor, Tensor], norms: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys, normalised and rotated, of heads (tokens, q + k + v heads, head_dim), which may change.

        `angles` are the cosine and signed sine (tokens, 1, head_dim), `norms` the weights (head_dim,) for q and k.
        """

    def gate(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of (tokens, 2 * size), gate first."""


@dataclass(frozen=True, slots=True)
class TorchOps:
    """Calls of torch, on any device."""

    architecture: ModelArchitecture

    def add_norm(self, hidden: Tensor, delta: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See LayerOps."""
        total = hidden if delta is None else hidden + delta
        return total, self._norm(total, weight)

    def rotate(
        self, heads: Tensor, angles: tuple[Tensor, Tensor], norms: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """See LayerOps."""
        num_heads = self.architecture.num_heads
        rotated = heads[:, : num_heads + self.architecture.num_kv_heads]
        if norms is not None:
            q, k = self._norm(rotated[:, :num_heads], norms[0]), self._norm(rotated[:, num_heads:], norms[1])
            rotated = torch.cat((q, k), dim=1)
        rotated = rotate(rotated, *angles)
        return rotated[:, :num_heads], rotated[:, num_heads:]

    def gate(self, gate_up: Tensor) -> Tensor:
        """See LayerOps."""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.architecture.rms_norm_eps)


@dataclass(frozen=True, slots=True)
class NativeOps:
    """Kernels of our own, in bfloat16 on a CPU."""

    architecture: ModelArchitecture
    kernels: "Kernels"

    def add_norm(self, hidden: Tensor, delta: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See LayerOps."""
        return self.kernels.add_norm(hidden, delta, weight, self.architecture.rms_norm_eps)

    def rotate(
        self, heads: Tensor, angles: tuple[Tensor, Tensor], norms: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """See LayerOps; in place."""
        shape = self.architecture
        q_norm, k_norm = norms or (None, None)
        self.kernels.rotate(
            heads, *angles, num_heads=shape.num_heads, num_kv_heads=shape.num_kv_heads, q_norm=q_norm, k_norm=k_norm,
            eps=shape.rms_norm_eps,
        )  # fmt: skip
        return heads[:, : shape.num_heads], heads[:, shape.num_heads : shape.num_heads + shape.num_kv_heads]

    def gate(self, gate_up: Tensor) -> Tensor:
        """See LayerOps."""
        return self.kernels.gate(gate_up)
