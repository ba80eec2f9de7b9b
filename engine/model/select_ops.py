"""Chooses how a model's layers compute between their products, as the attention is chosen: by capability and test."""

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.model.layer_ops import LayerOps, NativeOps, TorchOps
from engine.triton_kernels.support import obstacle

if TYPE_CHECKING:
    from engine.native.kernels import Kernels

log = logging.getLogger(__name__)

_TEST_ROWS = 3


def select_ops(
    architecture: ModelArchitecture, kernels: "Kernels | None", *, dtype: torch.dtype, device: torch.device
) -> LayerOps:
    """Kernels of our own where there are some for this device, else torch's."""
    if kernels is not None:
        return NativeOps(architecture, kernels)
    portable = TorchOps(architecture)
    if obstacle(device, head_dim=architecture.head_dim):
        return portable
    from engine.model.triton_ops import TritonOps

    ours = TritonOps(architecture)
    with torch.inference_mode():
        try:
            if agrees_with_torch(ours, architecture, dtype, device):
                return ours
            log.warning("the layers' Triton kernels are not used: they do not compute what torch does")
        except Exception:
            log.exception("the layers' Triton kernels are not used: their test failed")
    return portable


def agrees_with_torch(
    ops: LayerOps, architecture: ModelArchitecture, dtype: torch.dtype, device: torch.device
) -> bool:  # fmt: skip
    """Every step on random rows, against torch in float32; within the rounding of `dtype`."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device=device, dtype=dtype)

    shape = architecture
    hidden, delta, weight = (
        draw(_TEST_ROWS, shape.hidden_size),
        draw(_TEST_ROWS, shape.hidden_size),
        draw(shape.hidden_size),
    )
    heads = draw(_TEST_ROWS, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)
    angles = draw(_TEST_ROWS, 1, shape.head_dim), draw(_TEST_ROWS, 1, shape.head_dim)
    norms = (draw(shape.head_dim), draw(shape.head_dim)) if shape.qk_norm else None
    gate_up = draw(_TEST_ROWS, 2 * shape.intermediate_size)

    def outputs(of: LayerOps, cast: torch.dtype) -> list[Tensor]:
        x, y, w, turned, both = (tensor.to(cast, copy=True) for tensor in (hidden, delta, weight, heads, gate_up))
        cos, sin = (tensor.to(cast) for tensor in angles)
        scales = None if norms is None else (norms[0].to(cast), norms[1].to(cast))
        return [*of.add_norm(x, y, w), *of.add_norm(x, None, w), *of.rotate(turned, (cos, sin), scales), of.gate(both)]

    tolerance = 8 * torch.finfo(dtype).eps
    found, expected = outputs(ops, dtype), outputs(TorchOps(architecture), torch.float32)
    return all(
        torch.allclose(ours.float(), theirs, rtol=tolerance, atol=tolerance)
        for ours, theirs in zip(found, expected, strict=True)
    )
