"""Rotary settings from a config.json, in the spelling of any version of transformers.

Which value goes first, and what is derived from what, follows transformers 5.24 (`modeling_rope_utils.py`,
`convert_rope_params_to_dict` and `ROPE_INIT_FUNCTIONS`).
"""

import math
from collections.abc import Mapping
from typing import Any

from engine.architecture import RopeScaling
from engine.errors import ModelError
from engine.weights.config_keys import ConfigKeys

DEFAULT_ROPE_THETA = 10000.0
_ORIGINAL = "original_max_position_embeddings"


def rope_from_config(config: ConfigKeys, *, context_tokens: int, head_dim: int) -> tuple[float, RopeScaling]:
    """The base of the frequencies, and how they are scaled.

    Args:
        config: the whole config.json.
        context_tokens: its `max_position_embeddings`.
        head_dim: size of one attention head.

    Raises:
        ModelError: a kind that is not known, or numbers that are missing or make no sense.
    """
    keys = ConfigKeys(_parameters(config), config.name)
    for source in (keys, config):
        if source.config.get("partial_rotary_factor") not in (None, 1):
            raise ModelError(
                f"{config.name} rotates only a part of each head, which cannot be computed yet. Choose another model."
            )
    reader = _RopeReader(config, keys, context_tokens, head_dim)
    source = keys if keys.has("rope_theta") else config
    theta = source.number("rope_theta", DEFAULT_ROPE_THETA)
    if theta <= 1:
        raise source.unusable("rope_theta")
    return theta, reader.scaling()


def _parameters(config: ConfigKeys) -> Mapping[str, Any]:
    """Transformers 5 writes `rope_parameters`, older versions `rope_scaling`; like it, the old spelling goes first."""
    key = "rope_scaling" if config.config.get("rope_scaling") else "rope_parameters"
    parameters = config.config.get(key) or {}
    if not isinstance(parameters, dict):
        raise config.unusable(key)
    if any(isinstance(value, dict) for value in parameters.values()):
        raise ModelError(
            f"{config.name} rotates its kinds of layers each in its own way, which cannot be computed yet. "
            "Choose another model."
        )
    return parameters


class _RopeReader:
    """One kind of scaling with its numbers."""

    def __init__(self, config: ConfigKeys, keys: ConfigKeys, context_tokens: int, head_dim: int) -> None:
        self._config = config
        self._keys = keys
        self._context_tokens = context_tokens
        self._head_dim = head_dim

    def scaling(self) -> RopeScaling:
        kind = self._keys.config.get("rope_type") or self._keys.config.get("type") or "default"
        match kind:
            case "default":
                return RopeScaling()
            case "linear" | "dynamic":
                return RopeScaling(kind=kind, factor=self._factor(kind))
            case "llama3":
                return self._llama3()
            case "yarn":
                return self._yarn()
            case "longrope":
                return self._longrope()
        raise unknown_rope_kind(self._config.name, kind)

    def _llama3(self) -> RopeScaling:
        low, high = self._stated("llama3", "low_freq_factor"), self._stated("llama3", "high_freq_factor")
        if high <= low:
            raise self._keys.unusable("high_freq_factor")
        return RopeScaling(
            kind="llama3",
            factor=self._factor("llama3"),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=self._original(),
        )

    def _yarn(self) -> RopeScaling:
        keys = self._keys
        original = self._original()
        # A factor of null means the ratio of both contexts; one that is not there at all is an error.
        is_null = "factor" in keys.config and not keys.has("factor")
        factor = self._context_tokens / original if is_null else self._factor("yarn")
        return RopeScaling(
            kind="yarn",
            factor=factor,
            beta_fast=keys.number("beta_fast", 32.0),
            beta_slow=keys.number("beta_slow", 1.0),
            truncate=keys.flag("truncate", default=True),
            original_max_position_embeddings=original,
            attention_factor=keys.number("attention_factor", self._yarn_attention_factor(factor)),
        )

    def _yarn_attention_factor(self, factor: float) -> float:
        """The paper's, or DeepSeek's where both of its numbers are given and neither is 0."""
        mscale, over_all = (self._keys.config.get(key) for key in ("mscale", "mscale_all_dim"))
        if not mscale or not over_all:
            return yarn_magnitude(factor)
        return yarn_magnitude(factor, self._keys.number("mscale")) / yarn_magnitude(
            factor, self._keys.number("mscale_all_dim")
        )

    def _longrope(self) -> RopeScaling:
        keys = self._keys
        original = self._original()
        factor = keys.number("factor", self._context_tokens / original)
        return RopeScaling(
            kind="longrope",
            factor=factor,
            original_max_position_embeddings=original,
            short_factors=self._factors("short_factor"),
            long_factors=self._factors("long_factor"),
            attention_factor=keys.number("attention_factor", longrope_magnitude(factor, original)),
        )

    def _original(self) -> int:
        """The context before it was stretched: beside the rope's settings, among them, or the whole context."""
        source = self._config if self._config.has(_ORIGINAL) else self._keys
        return source.integer(_ORIGINAL, self._context_tokens)

    def _factor(self, kind: str) -> float:
        return self._stated(kind, "factor")

    def _stated(self, kind: str, key: str) -> float:
        if not self._keys.has(key):
            raise ModelError(
                f"The config.json of {self._config.name} asks for the rope scaling {kind!r} without saying {key}. "
                "Download the model again."
            )
        return self._keys.number(key)

    def _factors(self, key: str) -> tuple[float, ...]:
        values = self._keys.config.get(key)
        wanted = self._head_dim // 2
        is_list = isinstance(values, list) and all(isinstance(value, int | float) and value > 0 for value in values)
        if values is None or not is_list or len(values) != wanted:
            raise ModelError(
                f"The config.json of {self._config.name} cannot be used: its {key} is no list of {wanted} numbers. "
                "Download the model again, or choose another."
            )
        return tuple(float(value) for value in values)


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """YaRN's correction of the attention for a context `factor` times longer (https://arxiv.org/abs/2309.00071)."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def longrope_magnitude(factor: float, original_tokens: int) -> float:
    """LongRoPE's correction of the attention (https://arxiv.org/abs/2402.13753)."""
    return math.sqrt(1 + math.log(factor) / math.log(original_tokens)) if factor > 1 and original_tokens > 1 else 1.0


def unknown_rope_kind(name: str, kind: object) -> ModelError:
    """The refusal of a kind of scaling that is not known: guessing would give wrong answers silently."""
    return ModelError(
        f"{name} stretches its context by the rope scaling {kind!r}, which cannot be computed. Choose a model with "
        "linear, dynamic, llama3, yarn or longrope scaling, or none."
    )
