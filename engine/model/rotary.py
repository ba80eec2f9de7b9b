"""Rotary position embedding (RoFormer, https://arxiv.org/abs/2104.09864), in the half-split layout of Llama."""

import math

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture, RopeScaling

_SLICE_POSITIONS = 4096  # made at once: float64 tables of a long context would take hundreds of megabytes


def inverse_frequencies(architecture: ModelArchitecture, context_tokens: int) -> Tensor:
    """Angular step per position of each pair of channels: float64 (head_dim / 2,).

    Formulas as in transformers' `ROPE_INIT_FUNCTIONS`, with one difference: where those look at the length that a
    sequence has reached ("dynamic", "longrope"), these take the longest context that is planned, once and for all.
    Keys in the cache are rotated already and could not follow a change.

    Args:
        architecture: with its rope_theta and rope_scaling.
        context_tokens: the longest context that is planned.
    """
    scaling = architecture.rope_scaling
    frequencies = _frequencies(architecture, architecture.rope_theta)
    match scaling.kind:
        case "default":
            return frequencies
        case "linear":
            return frequencies / scaling.factor
        case "dynamic":
            return _frequencies(architecture, _dynamic_base(architecture, context_tokens))
        case "llama3":
            return _llama3(frequencies, scaling)
        case "yarn":
            return _yarn(frequencies, architecture)
        case "longrope":
            is_long = context_tokens > scaling.original_max_position_embeddings
            return frequencies / _values(scaling.long_factors if is_long else scaling.short_factors)
        case "factors":
            return frequencies / scaling.factor / _values(scaling.frequency_factors)
    raise AssertionError(f"rope kind {scaling.kind} was not refused when the model was read")


def _frequencies(architecture: ModelArchitecture, base: float) -> Tensor:
    exponents = torch.arange(0, architecture.head_dim, 2, dtype=torch.float64) / architecture.head_dim
    return 1.0 / base**exponents


def _values(numbers: tuple[float, ...]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _dynamic_base(architecture: ModelArchitecture, context_tokens: int) -> float:
    """A larger base for a context beyond the trained one (NTK-aware scaling); up to there nothing changes."""
    trained, factor = architecture.max_position_embeddings, architecture.rope_scaling.factor
    if context_tokens <= trained:
        return architecture.rope_theta
    stretch = factor * context_tokens / trained - (factor - 1)
    exponent = architecture.head_dim / (architecture.head_dim - 2)
    return architecture.rope_theta * math.pow(stretch, exponent)


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow channels are divided by the factor, fast ones stay, those between are blended (Llama 3.1's release)."""
    rotations = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    share_kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies / scaling.factor * (1 - share_kept) + frequencies * share_kept


def _yarn(frequencies: Tensor, architecture: ModelArchitecture) -> Tensor:
    """As llama3, but blended along the channels between two of them (https://arxiv.org/abs/2309.00071)."""
    scaling, dim = architecture.rope_scaling, architecture.head_dim
    low, high = (_turning_channel(architecture, turns) for turns in (scaling.beta_fast, scaling.beta_slow))
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low or 0.001  # no division by zero
    share_stretched = ((torch.arange(dim // 2, dtype=torch.float64) - low) / width).clamp(0.0, 1.0)
    return frequencies / scaling.factor * share_stretched + frequencies * (1 - share_stretched)


def _turning_channel(architecture: ModelArchitecture, turns: float) -> float:
    """The pair of channels, as a real number, that turns this often over the original context."""
    period = architecture.rope_scaling.original_max_position_embeddings / (turns * 2 * math.pi)
    return architecture.head_dim * math.log(period) / (2 * math.log(architecture.rope_theta))


class Rotary:
    """Cosine and signed sine tables for every position of the context, times the scaling's attention factor.

    The sine of the first half carries a minus sign, so that a rotation is two products and a roll:
    rotate(x) = x * cos + roll(x, head_dim / 2) * signed_sin.
    """

    def __init__(
        self, architecture: ModelArchitecture, max_positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        frequencies = inverse_frequencies(architecture, max_positions)
        magnitude = architecture.rope_scaling.attention_factor
        self._cos = torch.empty(max_positions, architecture.head_dim, dtype=dtype, device=device)
        self._sin = torch.empty_like(self._cos)
        for start in range(0, max_positions, _SLICE_POSITIONS):
            rows = slice(start, min(start + _SLICE_POSITIONS, max_positions))
            angles = torch.outer(torch.arange(rows.start, rows.stop, dtype=torch.float64), frequencies)
            cos, sin = angles.cos() * magnitude, angles.sin() * magnitude
            self._cos[rows] = torch.cat((cos, cos), dim=-1)
            self._sin[rows] = torch.cat((-sin, sin), dim=-1)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine, each (tokens, 1, head_dim), for positions (tokens,)."""
        return self._cos.index_select(0, positions).unsqueeze(1), self._sin.index_select(0, positions).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (tokens, heads, head_dim) by its position's angles."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
