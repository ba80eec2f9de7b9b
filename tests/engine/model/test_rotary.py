"""Rotary embedding against transformers', and against complex numbers in float64."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from engine.architecture import ModelArchitecture, RopeScaling
from engine.model.rotary import Rotary, inverse_frequencies, rotate
from engine.weights.config_json import architecture_from_config

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "other-theta": {"rope_type": "default", "rope_theta": 100_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "llama3": LLAMA3,
    "llama3-narrow": LLAMA3 | {"factor": 32.0, "high_freq_factor": 1.5, "original_max_position_embeddings": 128},
}
MAX_POSITIONS = 512


def llama_config(kind: str, **changes: Any) -> LlamaConfig:
    sizes = {"vocab_size": 96, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    return LlamaConfig(rope_parameters=dict(KINDS[kind]), max_position_embeddings=MAX_POSITIONS, **(sizes | changes))


def architecture(config: LlamaConfig) -> ModelArchitecture:
    return architecture_from_config(config.to_dict(), name="tiny")


def by_factors(*factors: float) -> ModelArchitecture:
    shape = architecture(llama_config("default", head_dim=2 * len(factors)))
    return replace(shape, rope_scaling=RopeScaling(kind="factors", frequency_factors=factors))


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_transformers(kind: str) -> None:
    config = llama_config(kind)
    expected = LlamaRotaryEmbedding(config).inv_freq.double()
    torch.testing.assert_close(inverse_frequencies(architecture(config)), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_rotation_is_transformers(kind: str) -> None:
    config = llama_config(kind)
    positions = torch.tensor([0, 1, 2, 63, 64, 200, MAX_POSITIONS - 1])
    x = torch.randn(len(positions), 6, config.head_dim, generator=torch.Generator().manual_seed(1))
    cos, sin = LlamaRotaryEmbedding(config)(x, positions.unsqueeze(0))
    expected, _ = apply_rotary_pos_emb(x.transpose(0, 1).unsqueeze(0), x.transpose(0, 1).unsqueeze(0), cos, sin)
    rotary = Rotary(architecture(config), MAX_POSITIONS, torch.float32, torch.device("cpu"))
    # transformers multiplies positions and frequencies in float32: up to 512 * 6e-8 of an angle is its own error.
    torch.testing.assert_close(rotate(x, *rotary.tables(positions)), expected[0].transpose(0, 1), rtol=1e-4, atol=2e-4)


def test_a_long_context_keeps_its_angles() -> None:
    """At position 131,071 a float32 angle would be off by a hundredth; ours are made in float64."""
    shape = architecture(llama_config("llama3"))
    last = 131_071
    x = torch.randn(1, 3, shape.head_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rotary = Rotary(shape, last + 1, torch.float32, torch.device("cpu"))
    half = shape.head_dim // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones(half, dtype=torch.float64), last * inverse_frequencies(shape)
    )
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    found = rotate(x.float(), *rotary.tables(torch.tensor([last])))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_factors_divide_each_frequency_by_its_own() -> None:
    factors = (1.0, 1.0, 2.5, 32.0)
    plain = inverse_frequencies(replace(by_factors(*factors), rope_scaling=RopeScaling()))
    found = inverse_frequencies(by_factors(*factors))
    assert found.dtype is torch.float64
    assert found.tolist() == [frequency / factor for frequency, factor in zip(plain.tolist(), factors, strict=True)]


def test_factors_can_say_what_llama3_says() -> None:
    """A GGUF of Llama 3.1 carries factors where the folder carries five numbers."""
    shape = architecture(llama_config("llama3"))
    plain = replace(shape, rope_scaling=RopeScaling())
    factors = tuple((inverse_frequencies(plain) / inverse_frequencies(shape)).tolist())
    by_table = replace(shape, rope_scaling=RopeScaling(kind="factors", frequency_factors=factors))
    torch.testing.assert_close(inverse_frequencies(by_table), inverse_frequencies(shape), rtol=1e-15, atol=0)


def test_tables_have_the_dtype_of_the_model() -> None:
    rotary = Rotary(architecture(llama_config("default")), 8, torch.bfloat16, torch.device("cpu"))
    cos, sin = rotary.tables(torch.tensor([3, 0]))
    assert cos.dtype is sin.dtype is torch.bfloat16
    assert cos.shape == sin.shape == (2, 1, 64)
