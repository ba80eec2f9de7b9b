"""Rotary settings from a GGUF file: keys below "rope." and the small tensors that list factors. No torch.

What a key means follows llama.cpp (src/llama-context.cpp, ggml's `rope_yarn`); its converter writes the same keys from
a config.json, and both readings have to agree.
"""

import struct
from collections.abc import Mapping
from typing import Any

from engine.architecture import RopeScaling
from engine.errors import ModelError
from engine.gguf_file import GGUFHeader
from engine.weights.config_rope import unknown_rope_kind, yarn_magnitude

FREQUENCY_FACTORS = "rope_freqs.weight"
LONG_FACTORS = "rope_factors_long.weight"
SHORT_FACTORS = "rope_factors_short.weight"


def rope_from_header(header: GGUFHeader, prefix: str, head_dim: int) -> RopeScaling:
    """How the frequencies are scaled.

    Args:
        header: of a GGUF file.
        prefix: its architecture.
        head_dim: size of one attention head.

    Raises:
        ModelError: a kind that is not known, or numbers that are missing or make no sense.
    """
    return _RopeKeys(header, prefix, head_dim).scaling()


class _RopeKeys:
    def __init__(self, header: GGUFHeader, prefix: str, head_dim: int) -> None:
        self._header = header
        self._metadata: Mapping[str, Any] = header.metadata
        self._prefix = prefix
        self._head_dim = head_dim

    def scaling(self) -> RopeScaling:
        kind = self._metadata.get(f"{self._prefix}.rope.scaling.type")
        factors = self._factors(FREQUENCY_FACTORS)
        if kind == "yarn" and not factors:
            return self._yarn()
        if kind == "longrope" and not factors:
            return self._longrope()
        if kind not in (None, "none", "linear"):
            raise unknown_rope_kind(str(self._header.path), kind)
        factor = 1.0 if kind == "none" else self._linear_factor()
        if factors:
            return RopeScaling(kind="factors", factor=factor, frequency_factors=factors)
        return RopeScaling(kind="linear", factor=factor) if factor != 1 else RopeScaling()

    def _linear_factor(self) -> float:
        """Files of 2023 name it `scale_linear`."""
        older = self._number("rope.scale_linear", 1.0)
        return self._number("rope.scaling.factor", older)

    def _yarn(self) -> RopeScaling:
        """`yarn_attn_factor` is the whole correction; `attn_factor` is one beside YaRN's own."""
        factor = self._number("rope.scaling.factor", 1.0)
        magnitude = yarn_magnitude(factor) * self._number("rope.scaling.attn_factor", 1.0)
        return RopeScaling(
            kind="yarn",
            factor=factor,
            beta_fast=self._number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=self._number("rope.scaling.yarn_beta_slow", 1.0),
            original_max_position_embeddings=self._original(),
            attention_factor=self._number("rope.scaling.yarn_attn_factor", magnitude),
        )

    def _longrope(self) -> RopeScaling:
        long, short = self._factors(LONG_FACTORS), self._factors(SHORT_FACTORS)
        if not long or not short:
            raise ModelError(
                f"{self._header.path} cannot be used: it asks for longrope scaling and has no tensor "
                f"{SHORT_FACTORS if long else LONG_FACTORS}. Download the model again, or choose another."
            )
        return RopeScaling(
            kind="longrope",
            factor=self._number("rope.scaling.factor", 1.0),
            original_max_position_embeddings=self._original(),
            short_factors=short,
            long_factors=long,
            attention_factor=self._number("rope.scaling.attn_factor", 1.0),
        )

    def _original(self) -> int:
        context = self._number("context_length")
        return int(self._number("rope.scaling.original_context_length", context))

    def _number(self, key: str, default: float | None = None) -> float:
        name = f"{self._prefix}.{key}"
        value = self._metadata.get(name, default)
        if not isinstance(value, int | float) or not value > 0:
            found = "is missing" if value is None else f"has the value {value!r}"
            raise ModelError(
                f"The GGUF file {self._header.path} cannot be used: its field {name} {found}. "
                "Convert or download the model again."
            )
        return float(value)

    def _factors(self, tensor_name: str) -> tuple[float, ...]:
        """A small float32 tensor's numbers; none when the file lacks it."""
        record = self._header.tensors.get(tensor_name)
        if record is None:
            return ()
        wanted = self._head_dim // 2
        count = record.num_bytes // 4 if record.kind.name == "F32" else 0
        if count != wanted:
            raise ModelError(
                f"{self._header.path} cannot be used: its {tensor_name} has {count} factors in float32 where the model "
                f"needs {wanted}. Download the model again, or choose another."
            )
        with self._header.path.open("rb") as file:
            file.seek(record.offset_bytes)
            return struct.unpack(f"<{count}f", file.read(record.num_bytes))
