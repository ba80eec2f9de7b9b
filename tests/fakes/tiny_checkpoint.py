"""Tiny random models of every family, as transformers makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

TINY: Mapping[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD_DIM = 16
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}


def longrope(head_dim: int, **changes: Any) -> dict[str, Any]:
    """Settings whose lists fit the head: short factors near 1, long ones up to 4."""
    pairs = head_dim // 2
    return {
        "rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 64, "factor": 4.0,
        "short_factor": [1.0 + pair / 40 for pair in range(pairs)],
        "long_factor": [1.0 + 3.0 * pair / pairs for pair in range(pairs)],
    } | changes  # fmt: skip


ROPES: Mapping[str, Mapping[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "longrope": longrope(HEAD_DIM),
}
"""One setting of each kind, for heads of HEAD_DIM channels."""


@dataclass(frozen=True)
class TinyFamily:
    """Classes of one family, and what distinguishes its models from a Llama of the same sizes."""

    config_class: type[PreTrainedConfig]
    model_class: type[PreTrainedModel]
    changes: Mapping[str, Any]


FAMILIES: Mapping[str, TinyFamily] = {
    "llama": TinyFamily(LlamaConfig, LlamaForCausalLM, {}),
    "mistral": TinyFamily(MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "qwen2": TinyFamily(Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": TinyFamily(Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32}),
}


def tiny_checkpoint(family: str, **changes: Any) -> Any:
    """A model with random weights from a fixed seed, biases and norms included, in float32."""
    kind = FAMILIES[family]
    model = kind.model_class(kind.config_class(**(TINY | kind.changes | changes)))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.eval()
