"""Random weights have the real models' shapes, and the same numbers every time."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.errors import UsageError
from engine.weights.config_json import architecture_from_config
from engine.weights.expected import expected_shapes
from engine.weights.random import SHAPES, RandomWeights

# What the models' own config.json says.
QWEN3 = {"head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 40_960}
CONFIGS: dict[str, tuple[type, PreTrainedConfig]] = {
    "qwen3-0.6b": (Qwen3ForCausalLM, Qwen3Config(
        vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, tie_word_embeddings=True, **QWEN3,
    )),
    "qwen3-8b": (Qwen3ForCausalLM, Qwen3Config(
        vocab_size=151_936, hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, **QWEN3,
    )),
    "llama-3.1-8b": (LlamaForCausalLM, LlamaConfig(
        vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=5e5, max_position_embeddings=131_072,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192},
    )),
    "qwen2.5-7b": (Qwen2ForCausalLM, Qwen2Config(
        vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, rope_theta=1e6, max_position_embeddings=32_768, max_window_layers=28,
        sliding_window=131_072, use_sliding_window=False,
    )),
    "mistral-7b": (MistralForCausalLM, MistralConfig(
        vocab_size=32_768, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1e6, max_position_embeddings=32_768, sliding_window=None,
    )),
    "smollm2-135m": (LlamaForCausalLM, LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, rms_norm_eps=1e-5, rope_theta=1e5, max_position_embeddings=8192,
        tie_word_embeddings=True,
    )),
}  # fmt: skip
PARAMETERS = {
    "qwen3-0.6b": 596_049_920, "qwen3-8b": 8_190_735_360, "llama-3.1-8b": 8_030_261_248,
    "qwen2.5-7b": 7_615_616_512, "mistral-7b": 7_248_023_552, "smollm2-135m": 134_515_008,
}  # fmt: skip


def test_every_shape_is_compared() -> None:
    assert set(SHAPES) == set(CONFIGS) == set(PARAMETERS)


@pytest.mark.parametrize("shape", CONFIGS)
def test_shapes_are_those_of_the_model(shape: str) -> None:
    model_class, config = CONFIGS[shape]
    read = architecture_from_config(config.to_dict(), name=SHAPES[shape].name)
    assert replace(read, bos_token_id=None, eos_token_ids=()) == SHAPES[shape]
    config.num_hidden_layers = 1
    with torch.device("meta"):
        expected = {name: tuple(parameter.shape) for name, parameter in model_class(config).named_parameters()}
    stored = dict(expected_shapes(replace(SHAPES[shape], num_layers=1)))
    assert stored == expected


@pytest.mark.parametrize(("shape", "parameters"), PARAMETERS.items())
def test_parameters_are_those_of_the_model(shape: str, parameters: int) -> None:
    """The models' published counts, a tied head counted once."""
    assert SHAPES[shape].num_parameters == parameters


def test_every_tensor_can_be_drawn() -> None:
    weights = RandomWeights("smollm2-135m")
    for name, shape in expected_shapes(weights.architecture):
        if ".layers." not in name or ".layers.0." in name:
            assert weights.tensor(name, torch.bfloat16).shape == shape


def test_biases_are_drawn_like_weights() -> None:
    bias = RandomWeights("qwen2.5-7b").tensor("model.layers.0.self_attn.k_proj.bias", torch.float32)
    assert bias.shape == (512,)
    assert bias.std().item() == pytest.approx(0.02, rel=0.1)


def test_the_same_name_gives_the_same_numbers() -> None:
    name = "model.layers.3.self_attn.k_proj.weight"
    first, second = (RandomWeights("smollm2-135m").tensor(name, torch.float32) for _ in range(2))
    assert torch.equal(first, second)
    assert first.std().item() == pytest.approx(0.02, rel=0.05)
    other = RandomWeights("smollm2-135m").tensor("model.layers.4.self_attn.k_proj.weight", torch.float32)
    assert not torch.equal(first, other)


def test_norms_are_ones() -> None:
    norm = RandomWeights("qwen3-0.6b").tensor("model.layers.0.self_attn.q_norm.weight", torch.bfloat16)
    assert norm.dtype is torch.bfloat16
    assert torch.equal(norm, torch.ones(128, dtype=torch.bfloat16))


def test_an_unknown_shape_is_named() -> None:
    with pytest.raises(UsageError, match=r"'qwen9'; choose one of qwen3-0.6b, .*, smollm2-135m\."):
        RandomWeights("qwen9")
