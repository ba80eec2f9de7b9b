"""Random weights have the real models' shapes, and the same numbers every time."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engine.errors import UsageError
from engine.weights.random import SHAPES, RandomWeights

# From the models' own config.json; one layer is enough to compare every shape.
QWEN3 = Qwen3Config(
    vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=1, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False,
)  # fmt: skip
SMOLLM2 = LlamaConfig(
    vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=1, num_attention_heads=9,
    num_key_value_heads=3, rms_norm_eps=1e-5, tie_word_embeddings=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "model_class", "config"),
    [("qwen3-0.6b", Qwen3ForCausalLM, QWEN3), ("smollm2-135m", LlamaForCausalLM, SMOLLM2)],
)
def test_shapes_are_those_of_the_model(shape: str, model_class: type, config: LlamaConfig) -> None:
    with torch.device("meta"):
        expected = {name: tuple(parameter.shape) for name, parameter in model_class(config).named_parameters()}
    weights = RandomWeights(shape)
    assert {name: weights._shape(name) for name in expected} == expected


@pytest.mark.parametrize(("shape", "parameters"), [("qwen3-0.6b", 596_049_920), ("smollm2-135m", 134_515_008)])
def test_parameters_are_those_of_the_model(shape: str, parameters: int) -> None:
    """The models' published counts, the tied head counted once."""
    assert SHAPES[shape].num_parameters == parameters


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
    with pytest.raises(UsageError, match=r"'qwen9'; choose one of qwen3-0.6b, smollm2-135m\."):
        RandomWeights("qwen9")
