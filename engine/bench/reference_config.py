"""The same model in transformers' words: which classes, and a configuration that computes what ours does."""

from typing import Any

from engine.architecture import ModelArchitecture, RopeScaling

_CLASS_NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def reference_classes(architecture: ModelArchitecture) -> tuple[Any, Any]:
    """Classes of the configuration and of the model."""
    import transformers

    family = architecture.family
    if family == "llama" and architecture.layer_windows:
        family = "mistral"  # a GGUF file calls it Llama, which has no windows in transformers
    name = _CLASS_NAMES[family]
    return getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForCausalLM")


def reference_config(architecture: ModelArchitecture) -> Any:
    """The configuration."""
    config_class, _ = reference_classes(architecture)
    return config_class(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        num_key_value_heads=architecture.num_kv_heads,
        head_dim=architecture.head_dim,
        rms_norm_eps=architecture.rms_norm_eps,
        rope_parameters={"rope_theta": architecture.rope_theta, **_rope(architecture)},
        max_position_embeddings=architecture.max_position_embeddings,
        attention_bias=architecture.attention_bias,
        mlp_bias=architecture.mlp_bias,
        tie_word_embeddings=architecture.tie_word_embeddings,
        **_windows(architecture),
    )


def _windows(architecture: ModelArchitecture) -> dict[str, Any]:
    windows = architecture.layer_windows
    size = next((window for window in windows if window is not None), None)
    if architecture.family in ("llama", "mistral"):
        return {"sliding_window": size}
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return {"use_sliding_window": size is not None, "sliding_window": size, "layer_types": kinds or None}


def _rope(architecture: ModelArchitecture) -> dict[str, Any]:
    scaling = architecture.rope_scaling
    match scaling.kind:
        case "linear" | "dynamic":
            return {"rope_type": scaling.kind, "factor": scaling.factor}
        case "llama3":
            limits = {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
            return {"rope_type": "llama3", "factor": scaling.factor, **limits, **_original(scaling)}
        case "yarn":
            limits = {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow, "truncate": scaling.truncate}
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                **limits,
                **_original(scaling),
                **_magnitude(scaling),
            }
        case "longrope":
            lists = {"short_factor": list(scaling.short_factors), "long_factor": list(scaling.long_factors)}
            return {"rope_type": "longrope", **lists, **_original(scaling), **_magnitude(scaling)}
        case "factors":
            # transformers knows lists of factors from longrope only: one list, whatever the length.
            factors = [scaling.factor * factor for factor in scaling.frequency_factors]
            original = {"original_max_position_embeddings": architecture.max_position_embeddings}
            return {
                "rope_type": "longrope", "short_factor": factors, "long_factor": factors, **original,
                **_magnitude(scaling),
            }  # fmt: skip
    return {"rope_type": "default"}


def _original(scaling: RopeScaling) -> dict[str, int]:
    return {"original_max_position_embeddings": scaling.original_max_position_embeddings}


def _magnitude(scaling: RopeScaling) -> dict[str, float]:
    return {"attention_factor": scaling.attention_factor}
