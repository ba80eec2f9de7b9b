"""A model's shape from config.json and generation_config.json. Knows keys and values, no tensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.model_names import display_name
from engine.weights.config_keys import ConfigKeys
from engine.weights.config_rope import rope_from_config
from engine.weights.config_windows import windows_from_config
from engine.weights.families import FAMILIES, SUPPORTED_SENTENCE, Family

MIN_HEAD_DIM = 4
_SILU = ("silu", "swish")  # two names of one function


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object.

    Raises:
        ModelError: the file cannot be read or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}. Download the model again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object. Download the model again.")
    return value


def architecture_from_folder(folder: Path) -> ModelArchitecture:
    """Read the shape of a model folder.

    Raises:
        ModelError: no config.json, another family, or a feature that cannot be computed.
    """
    path = folder / "config.json"
    if not path.is_file():
        inside = min(folder.glob("*.gguf"), default=None)
        advice = f"choose the file {inside.name} in it" if inside is not None else "choose a GGUF file"
        raise ModelError(
            f"The folder {folder} has no config.json, so it is no model by itself. "
            f"Choose a folder with config.json and *.safetensors, or {advice}."
        )
    generation_path = folder / "generation_config.json"
    generation = read_json(generation_path) if generation_path.is_file() else {}
    return architecture_from_config(read_json(path), generation, name=display_name(folder))


def architecture_from_config(
    config: Mapping[str, Any], generation: Mapping[str, Any] | None = None, *, name: str
) -> ModelArchitecture:
    """Read the shape from parsed files; what they leave out is what transformers' class of that family says.

    Raises:
        ModelError: another family, a quantisation, or a feature that cannot be computed.
    """
    family = _family(config, name)
    keys = ConfigKeys(config, name)
    _check_features(keys)
    num_layers = keys.integer("num_hidden_layers")
    hidden_size, num_heads, num_kv_heads = _heads(keys, family)
    head_dim = keys.integer("head_dim", family.head_dim or hidden_size // num_heads)
    context_tokens = keys.integer("max_position_embeddings", family.max_position_embeddings)
    rope_theta, rope_scaling = rope_from_config(keys, context_tokens=context_tokens, head_dim=head_dim)
    bias = keys.flag("attention_bias", default=False)
    return ModelArchitecture(
        family=family.name,
        name=name,
        vocab_size=keys.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=keys.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=check_head_dim(head_dim, name),
        rms_norm_eps=keys.number("rms_norm_eps", 1e-6),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        max_position_embeddings=context_tokens,
        attention_bias=bias if family.qkv_bias is None else family.qkv_bias,
        attention_output_bias=bias if family.output_bias is None else family.output_bias,
        mlp_bias=family.reads_mlp_bias and keys.flag("mlp_bias", default=False),
        qk_norm=family.qk_norm,
        layer_windows=windows_from_config(keys, family, num_layers),
        tie_word_embeddings=keys.flag("tie_word_embeddings", default=False),
        bos_token_id=_bos_token_id(config),
        eos_token_ids=_eos_token_ids(generation or {}, config, default=family.eos_token_id),
    )


def check_head_dim(head_dim: int, name: str) -> int:
    """The head's size, which has to be even: rotation goes by pairs.

    Raises:
        ModelError: it is odd, or too small for any formula.
    """
    if head_dim % 2 or head_dim < MIN_HEAD_DIM:
        raise ModelError(
            f"{name} has heads of {head_dim} channels; only an even number of at least {MIN_HEAD_DIM} can be rotated. "
            "Choose another model."
        )
    return head_dim


def _family(config: Mapping[str, Any], name: str) -> Family:
    """The family that both the model type and the class name; a file may leave out one of them."""
    classes = config.get("architectures") or []
    model_class = classes[0] if isinstance(classes, list) and classes else None
    by_class = next((family for family in FAMILIES.values() if family.model_class == model_class), None)
    kind = config.get("model_type", by_class.name if by_class is not None else "unnamed")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or model_class not in (None, family.model_class):
        experts = any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
        mixture = ", a mixture of experts" if experts else ""
        raise ModelError(
            f"{name} is a model of the architecture {model_class or kind}{mixture}; {SUPPORTED_SENTENCE}. "
            "Choose one of these."
        )
    return family


def _check_features(keys: ConfigKeys) -> None:
    quantization = keys.config.get("quantization_config") or keys.config.get("compression_config")
    if quantization:
        method = quantization.get("quant_method", "an unnamed method") if isinstance(quantization, dict) else "unknown"
        raise ModelError(
            f"{keys.name} is quantised by {method}, which cannot be read. "
            "Choose the model in bfloat16 or float16, or as GGUF."
        )
    if keys.config.get("hidden_act", "silu") not in _SILU:
        raise ModelError(f"{keys.name} uses the activation {keys.config['hidden_act']}; only silu can be computed.")


def _heads(keys: ConfigKeys, family: Family) -> tuple[int, int, int]:
    """Hidden size, heads, and heads of keys and values. Null is as many as there are heads in every family."""
    hidden_size, num_heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    default = num_heads if "num_key_value_heads" in keys.config else family.num_kv_heads or num_heads
    num_kv_heads = keys.integer("num_key_value_heads", default)
    if num_heads % num_kv_heads:
        raise ModelError(
            f"The config.json of {keys.name} cannot be used: {num_heads} heads cannot share {num_kv_heads} heads of "
            "keys and values evenly. Download the model again, or choose another."
        )
    return hidden_size, num_heads, num_kv_heads


def _bos_token_id(config: Mapping[str, Any]) -> int | None:
    value = config.get("bos_token_id")
    return value if isinstance(value, int) else None


def _eos_token_ids(*sources: Mapping[str, Any], default: int | None) -> tuple[int, ...]:
    """Every end token that any of the files names: one number or a list of them. The family's where none says."""
    found: dict[int, None] = {}
    for source in sources:
        value = source.get("eos_token_id")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int):
                found[number] = None
    if default is not None and not any("eos_token_id" in source for source in sources):
        found[default] = None
    return tuple(found)
