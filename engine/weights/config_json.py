"""A model's shape from config.json and generation_config.json. Knows keys and values, no tensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.architecture import ModelArchitecture, RopeScaling
from engine.errors import ModelError
from engine.model_names import display_name

FAMILY = "llama"
DEFAULT_ROPE_THETA = 10000.0


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
        raise ModelError(
            f"The folder {folder} has no config.json, so it holds no model. "
            "Choose a folder with config.json and *.safetensors, or a GGUF file."
        )
    generation_path = folder / "generation_config.json"
    generation = read_json(generation_path) if generation_path.is_file() else {}
    return architecture_from_config(read_json(path), generation, name=display_name(folder))


def architecture_from_config(
    config: Mapping[str, Any], generation: Mapping[str, Any] | None = None, *, name: str
) -> ModelArchitecture:
    """Read the shape from parsed files; defaults are those of transformers' LlamaConfig.

    Raises:
        ModelError: another family, or a feature that cannot be computed.
    """
    _check_family(config, name)
    hidden_size = _integer(config, "hidden_size", name)
    num_heads = _integer(config, "num_attention_heads", name)
    attention_bias = bool(config.get("attention_bias", False))
    return ModelArchitecture(
        family=FAMILY,
        name=name,
        vocab_size=_integer(config, "vocab_size", name),
        hidden_size=hidden_size,
        intermediate_size=_integer(config, "intermediate_size", name),
        num_layers=_integer(config, "num_hidden_layers", name),
        num_heads=num_heads,
        num_kv_heads=_integer(config, "num_key_value_heads", name, default=num_heads),
        head_dim=_integer(config, "head_dim", name, default=hidden_size // num_heads),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=_rope_theta(config),
        rope_scaling=_rope_scaling(config, name),
        max_position_embeddings=_integer(config, "max_position_embeddings", name, default=2048),
        attention_bias=attention_bias,
        attention_output_bias=attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        bos_token_id=config.get("bos_token_id"),
        eos_token_ids=_eos_token_ids(generation or {}, config),
    )


def _check_family(config: Mapping[str, Any], name: str) -> None:
    classes = config.get("architectures") or []
    kind = config.get("model_type", FAMILY if "LlamaForCausalLM" in classes else "unnamed")
    if kind != FAMILY or (classes and "LlamaForCausalLM" not in classes):
        found = classes[0] if classes else kind
        raise ModelError(
            f"{name} is a model of the architecture {found}; only the Llama family (LlamaForCausalLM) can be run so "
            "far. Choose a Llama, SmolLM2 or similar model."
        )
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "an unnamed method") if isinstance(quantization, dict) else "unknown"
        raise ModelError(
            f"{name} is quantised by {method}, which cannot be read yet. "
            "Choose the model in bfloat16 or float16, or as GGUF."
        )
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{name} uses the activation {config['hidden_act']}; only silu can be computed.")


def _integer(config: Mapping[str, Any], key: str, name: str, *, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or value < 1:
        found = "is missing" if value is None else f"is {value!r}"
        raise ModelError(f"The config.json of {name} cannot be used: {key} {found}. Download the model again.")
    return value


def _rope_parameters(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Transformers 5 writes `rope_parameters`, older versions `rope_scaling`; like it, the old spelling goes first."""
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


def _rope_theta(config: Mapping[str, Any]) -> float:
    value = _rope_parameters(config).get("rope_theta") or config.get("rope_theta") or DEFAULT_ROPE_THETA
    return float(value)


def _rope_scaling(config: Mapping[str, Any], name: str) -> RopeScaling:
    parameters = _rope_parameters(config)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    partial = parameters.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise ModelError(
            f"{name} rotates only a part of each head, which cannot be computed yet. Choose another model."
        )
    try:
        match kind:
            case "default":
                return RopeScaling()
            case "linear":
                return RopeScaling(kind="linear", factor=float(parameters["factor"]))
            case "llama3":
                return RopeScaling(
                    kind="llama3",
                    factor=float(parameters["factor"]),
                    low_freq_factor=float(parameters["low_freq_factor"]),
                    high_freq_factor=float(parameters["high_freq_factor"]),
                    original_max_position_embeddings=_original_context(config, parameters),
                )
    except KeyError as error:
        raise ModelError(
            f"The config.json of {name} asks for the rope scaling {kind!r} without saying {error.args[0]}. "
            "Download the model again."
        ) from error
    raise ModelError(
        f"{name} stretches its context by the rope scaling {kind!r}, which cannot be computed yet. "
        "Choose a model with linear or llama3 scaling, or none."
    )


def _original_context(config: Mapping[str, Any], parameters: Mapping[str, Any]) -> int:
    key = "original_max_position_embeddings"
    return int(config.get(key) or parameters.get(key) or config["max_position_embeddings"])


def _eos_token_ids(*sources: Mapping[str, Any]) -> tuple[int, ...]:
    """Every end token that any of the files names: one number or a list of them."""
    found: dict[int, None] = {}
    for source in sources:
        value = source.get("eos_token_id")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int):
                found[number] = None
    return tuple(found)
