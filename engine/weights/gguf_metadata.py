"""A model's shape from the metadata of a GGUF file. Knows keys and values, reads no weights."""

from collections.abc import Mapping
from typing import Any

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.gguf_file import GGUFHeader
from engine.weights.config_json import check_head_dim
from engine.weights.families import FAMILIES, GGUF_ARCHITECTURES, SUPPORTED_SENTENCE
from engine.weights.gguf_rope import rope_from_header

_CONTROL_TOKEN = 3

# Older converters named only one end token; these control tokens end a turn in every model that has them.
_END_OF_TURN_TEXTS = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>"}
)


def architecture_from_header(header: GGUFHeader) -> ModelArchitecture:
    """Read the shape.

    Raises:
        ModelError: another family, or a feature that cannot be computed.
    """
    _check_parts(header)
    reader = _Keys(header, _architecture(header))
    num_heads = reader.integer("attention.head_count")
    hidden_size = reader.integer("embedding_length")
    head_dim = reader.integer("attention.key_length", hidden_size // num_heads)
    reader.check_heads(head_dim)
    num_layers = reader.integer("block_count")
    return ModelArchitecture(
        family=reader.prefix,
        name=header.path.stem,
        vocab_size=reader.vocab_size(),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=reader.num_kv_heads(num_heads),
        head_dim=check_head_dim(head_dim, str(header.path)),
        rms_norm_eps=reader.number("attention.layer_norm_rms_epsilon"),
        rope_theta=reader.number("rope.freq_base", 10000.0),
        rope_scaling=rope_from_header(header, reader.prefix, head_dim),
        max_position_embeddings=reader.integer("context_length"),
        attention_bias="blk.0.attn_q.bias" in header.tensors,
        attention_output_bias="blk.0.attn_output.bias" in header.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in header.tensors,
        qk_norm=FAMILIES[reader.prefix].qk_norm,
        layer_windows=reader.layer_windows(num_layers),
        tie_word_embeddings="output.weight" not in header.tensors,
        bos_token_id=header.metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=_eos_token_ids(header.metadata),
    )


def _check_parts(header: GGUFHeader) -> None:
    parts = header.metadata.get("split.count", 1)
    if parts != 1:
        raise ModelError(
            f"{header.path} is one of {parts} parts of a model. Join them into one file "
            "(`llama-gguf-split --merge`), or choose a model that is one file."
        )


def _architecture(header: GGUFHeader) -> str:
    found = header.metadata.get("general.architecture", "an unnamed architecture")
    if found not in GGUF_ARCHITECTURES:
        raise ModelError(
            f"{header.path} holds a model of the architecture {found!r}; {SUPPORTED_SENTENCE}. Choose one of these."
        )
    return str(found)


class _Keys:
    """Looks keys up below the architecture's name and turns what is missing or strange into a sentence."""

    def __init__(self, header: GGUFHeader, prefix: str) -> None:
        self.prefix = prefix
        self._header = header
        self._metadata = header.metadata
        if self._metadata.get(f"{prefix}.expert_count", 0):
            raise ModelError(f"{header.path} holds a mixture of experts, which cannot be run. Choose a dense model.")

    def check_heads(self, head_dim: int) -> None:
        for key in ("attention.value_length", "rope.dimension_count"):
            value = self.integer(key, head_dim)
            if value != head_dim:
                raise ModelError(
                    f"{self._header.path} has heads of {head_dim} with {key} {value}; "
                    "only equal sizes can be run. Choose another model."
                )

    def num_kv_heads(self, num_heads: int) -> int:
        value = self.integer("attention.head_count_kv", num_heads)
        if num_heads % value:
            raise self._unusable("attention.head_count_kv", value)
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._metadata.get(f"{self.prefix}.{key}", default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._unusable(key, value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._metadata.get(f"{self.prefix}.{key}", default)
        if not isinstance(value, int | float) or not value > 0:
            raise self._unusable(key, value)
        return float(value)

    def vocab_size(self) -> int:
        embedding = self._header.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise ModelError(f"{self._header.path} has no tensor token_embd.weight. Choose a file with a whole model.")
        return embedding.shape[0]

    def layer_windows(self, num_layers: int) -> tuple[int | None, ...]:
        """Of every layer, or of those that a list of flags marks. A window of 0 is none."""
        window = self._metadata.get(f"{self.prefix}.attention.sliding_window", 0)
        if window == 0:
            return ()
        window = self.integer("attention.sliding_window")
        pattern = self._metadata.get(f"{self.prefix}.attention.sliding_window_pattern", (True,) * num_layers)
        if not isinstance(pattern, tuple | list) or len(pattern) != num_layers:
            raise self._unusable("attention.sliding_window_pattern", pattern)
        return tuple(window if is_sliding else None for is_sliding in pattern)

    def _unusable(self, key: str, value: object) -> ModelError:
        found = "is missing" if value is None else f"has the value {value!r}"
        return ModelError(
            f"The GGUF file {self._header.path} cannot be used: its field {self.prefix}.{key} {found}. "
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
