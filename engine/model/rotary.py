"""Rotary position embedding (RoFormer, https://arxiv.org/abs/2104.09864), in the half-split layout of Llama."""

import math

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture, RopeScaling


def inverse_frequencies(architecture: ModelArchitecture) -> Tensor:
    """Angular step per position of each pair of channels: float64 (head_dim / 2,)."""
    exponents = torch.arange(0, architecture.head_dim, 2, dtype=torch.float64) / architecture.head_dim
    frequencies = 1.0 / architecture.rope_theta**exponents
    scaling = architecture.rope_scaling
    match scaling.kind:
        case "default":
            return frequencies
        case "linear":
            return frequencies / scaling.factor
        case "llama3":
            return _llama3(frequencies, scaling)
        case "factors":
            return frequencies / torch.tensor(scaling.frequency_factors, dtype=torch.float64)
    raise AssertionError(f"rope kind {scaling.kind} was not refused when the model was read")


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow channels are divided by the factor, fast ones stay, those between are blended (Llama 3.1's release)."""
    rotations = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share_kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies / scaling.factor * (1 - share_kept) + frequencies * share_kept


class Rotary:
    """Cosine and signed sine tables for every position of the context.

    The sine of the first half carries a minus sign, so that a rotation is two products and a roll:
    rotate(x) = x * cos + roll(x, head_dim / 2) * signed_sin.
    """

    def __init__(
        self, architecture: ModelArchitecture, max_positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        positions = torch.arange(max_positions, dtype=torch.float64)
        angles = torch.outer(positions, inverse_frequencies(architecture))
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat((cos, cos), dim=-1).to(device=device, dtype=dtype)
        self._sin = torch.cat((-sin, sin), dim=-1).to(device=device, dtype=dtype)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine, each (tokens, 1, head_dim), for positions (tokens,)."""
        return self._cos.index_select(0, positions).unsqueeze(1), self._sin.index_select(0, positions).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (tokens, heads, head_dim) by its position's angles."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
