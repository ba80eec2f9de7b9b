"""A model's shape from the metadata of a GGUF file. Knows keys and values, reads no tensor data."""

from collections.abc import Mapping
from typing import Any

from engine.architecture import ModelArchitecture, RopeScaling
from engine.errors import ModelError
from engine.gguf_file import GGUFHeader

FAMILY = "llama"
_CONTROL_TOKEN = 3

# Older converters named only one end token; these control tokens end a turn in every model that has them.
_END_OF_TURN_TEXTS = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>"}
)


def architecture_from_header(header: GGUFHeader, *, frequency_factors: tuple[float, ...] = ()) -> ModelArchitecture:
    """Read the shape.

    Args:
        header: of a GGUF file.
        frequency_factors: values of its rope_freqs.weight, if it has one.

    Raises:
        ModelError: another family, or a feature that cannot be computed.
    """
    reader = _Keys(header)
    reader.check_family()
    num_heads = reader.integer("attention.head_count")
    hidden_size = reader.integer("embedding_length")
    head_dim = reader.integer("attention.key_length", hidden_size // num_heads)
    reader.check_head(head_dim)
    return ModelArchitecture(
        family=FAMILY,
        name=header.path.stem,
        vocab_size=reader.vocab_size(),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("feed_forward_length"),
        num_layers=reader.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=reader.integer("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        rms_norm_eps=reader.number("attention.layer_norm_rms_epsilon"),
        rope_theta=reader.number("rope.freq_base", 10000.0),
        rope_scaling=reader.rope_scaling(frequency_factors, head_dim),
        max_position_embeddings=reader.integer("context_length"),
        attention_bias="blk.0.attn_q.bias" in header.tensors,
        attention_output_bias="blk.0.attn_output.bias" in header.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in header.tensors,
        tie_word_embeddings="output.weight" not in header.tensors,
        bos_token_id=header.metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=_eos_token_ids(header.metadata),
    )


class _Keys:
    """Looks keys up below "llama." and turns what is missing or strange into a sentence."""

    def __init__(self, header: GGUFHeader) -> None:
        self._header = header
        self._metadata = header.metadata

    def check_family(self) -> None:
        family = self._metadata.get("general.architecture", "an unnamed architecture")
        if family != FAMILY:
            raise ModelError(
                f"{self._header.path} holds a model of the architecture {family!r}; "
                "only the Llama family can be run so far. Choose a Llama, SmolLM2 or similar model."
            )
        if self._metadata.get("llama.expert_count", 0):
            raise ModelError(
                f"{self._header.path} holds a mixture of experts, which cannot be run yet. Choose a dense model."
            )

    def check_head(self, head_dim: int) -> None:
        for key in ("attention.value_length", "rope.dimension_count"):
            value = self.integer(key, head_dim)
            if value != head_dim:
                raise ModelError(
                    f"{self._header.path} has heads of {head_dim} with {key} {value}; "
                    "only equal sizes can be run. Choose another model."
                )

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._metadata.get(f"{FAMILY}.{key}", default)
        if not isinstance(value, int) or value < 1:
            raise self._unusable(key, value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._metadata.get(f"{FAMILY}.{key}", default)
        if not isinstance(value, int | float):
            raise self._unusable(key, value)
        return float(value)

    def vocab_size(self) -> int:
        embedding = self._header.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise ModelError(f"{self._header.path} has no tensor token_embd.weight. Choose a file with a whole model.")
        return embedding.shape[0]

    def rope_scaling(self, frequency_factors: tuple[float, ...], head_dim: int) -> RopeScaling:
        if frequency_factors:
            if len(frequency_factors) != head_dim // 2:
                raise ModelError(
                    f"{self._header.path} cannot be used: its rope_freqs.weight has {len(frequency_factors)} factors "
                    f"where the model needs {head_dim // 2}. Download the model again, or choose another."
                )
            return RopeScaling(kind="factors", frequency_factors=frequency_factors)
        kind = self._metadata.get("llama.rope.scaling.type")
        factor = self._metadata.get("llama.rope.scaling.factor", self._metadata.get("llama.rope.scale_linear"))
        if kind in (None, "linear") and factor is not None:
            return RopeScaling(kind="linear", factor=float(factor))
        if kind in (None, "none"):
            return RopeScaling()
        raise ModelError(
            f"{self._header.path} stretches its context by the rope scaling {kind!r}, which cannot be computed yet. "
            "Choose a model with linear or llama3 scaling, or none."
        )

    def _unusable(self, key: str, value: object) -> ModelError:
        found = "is missing" if value is None else f"has the value {value!r}"
        return ModelError(
            f"The GGUF file {self._header.path} cannot be used: its field {FAMILY}.{key} {found}. "
            "Convert or download the model again."
        )


def _eos_token_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
    named = [metadata[key] for key in keys if key in metadata]
    texts = metadata.get("tokenizer.ggml.tokens", ())
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    # Types are plain numbers: looking only at control tokens spares a walk over the whole vocabulary.
    by_text = [
        number
        for number, kind in enumerate(kinds)
        if kind == _CONTROL_TOKEN and number < len(texts) and texts[number] in _END_OF_TURN_TEXTS
    ]
    return tuple(dict.fromkeys([*named, *by_text]))
