"""Rotary embedding against transformers', and against complex numbers in float64.

transformers looks at the length that a sequence has reached where a kind depends on it; our tables are made once, for
the longest context that is planned. Both agree wherever the same frequencies hold.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from engine.architecture import ModelArchitecture, RopeScaling
from engine.model.rotary import Rotary, inverse_frequencies, rotate
from engine.weights.config_json import architecture_from_config
from tests.fakes.tiny_checkpoint import longrope

CPU = torch.device("cpu")

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LONGROPE = longrope(64, original_max_position_embeddings=128)
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "other-theta": {"rope_type": "default", "rope_theta": 100_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0},
    "llama3": LLAMA3,
    "llama3-narrow": LLAMA3 | {"factor": 32.0, "high_freq_factor": 1.5, "original_max_position_embeddings": 128},
    "yarn": YARN,
    "yarn-limits": YARN | {"beta_fast": 20, "beta_slow": 0.5},
    "yarn-one-channel": YARN | {"beta_fast": 8.0, "beta_slow": 8.0, "truncate": False},
    "yarn-null-limits": YARN | {"beta_fast": None, "beta_slow": None, "attention_factor": None},
    "yarn-not-truncated": YARN | {"truncate": False},
    "yarn-attention": YARN | {"attention_factor": 1.25},
    "yarn-mscale": YARN | {"mscale": 0.707, "mscale_all_dim": 1.0},
    "yarn-half-an-mscale": YARN | {"mscale": 0.707},
    "yarn-mscale-zero": YARN | {"mscale": 1.0, "mscale_all_dim": 0},
    "yarn-factor-of-contexts": YARN | {"factor": None},
    "yarn-shrinks": YARN | {"factor": 0.5},
    "yarn-without-original": {key: value for key, value in YARN.items() if not key.startswith("original")},
    "longrope": LONGROPE,
    "longrope-factor-of-contexts": {key: value for key, value in LONGROPE.items() if key != "factor"},
    "longrope-attention": LONGROPE | {"attention_factor": 1.5},
    "longrope-without-original": {key: value for key, value in LONGROPE.items() if not key.startswith("original")},
}
MAX_POSITIONS = 512


def llama_config(kind: str, **changes: Any) -> LlamaConfig:
    sizes = {"vocab_size": 96, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    sizes["max_position_embeddings"] = MAX_POSITIONS
    return LlamaConfig(rope_parameters=dict(KINDS[kind]), **(sizes | changes))


def original_tokens(kind: str) -> int:
    return int(KINDS[kind].get("original_max_position_embeddings", MAX_POSITIONS))


def planned(kind: str) -> list[int]:
    """Contexts on both sides of the border where a kind may change."""
    border = original_tokens(kind)
    return sorted({2, min(border, MAX_POSITIONS), min(border + 1, MAX_POSITIONS), MAX_POSITIONS})


def architecture(config: LlamaConfig) -> ModelArchitecture:
    return architecture_from_config(config.to_dict(), name="tiny")


def by_factors(*factors: float) -> ModelArchitecture:
    shape = architecture(llama_config("default", head_dim=2 * len(factors)))
    return replace(shape, rope_scaling=RopeScaling(kind="factors", frequency_factors=factors))


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_transformers(kind: str) -> None:
    """Those that its module holds after a sequence of exactly the planned length."""
    for context in planned(kind):
        config = llama_config(kind)
        module = LlamaRotaryEmbedding(config)
        module(torch.zeros(1), torch.arange(context).unsqueeze(0))
        found = inverse_frequencies(architecture(config), context)
        torch.testing.assert_close(found, module.inv_freq.double(), rtol=1e-6, atol=0)
        assert architecture(config).rope_scaling.attention_factor == pytest.approx(module.attention_scaling, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_rotation_is_transformers(kind: str) -> None:
    for context in planned(kind):
        config = llama_config(kind)
        positions = torch.arange(context)
        x = torch.randn(context, 6, config.head_dim, generator=torch.Generator().manual_seed(1))
        cos, sin = LlamaRotaryEmbedding(config)(x, positions.unsqueeze(0))
        both = x.transpose(0, 1).unsqueeze(0)
        expected, _ = apply_rotary_pos_emb(both, both, cos, sin)
        rotary = Rotary(architecture(config), context, torch.float32, CPU)
        found = rotate(x, *rotary.tables(positions))
        # transformers multiplies positions and frequencies in float32: up to 512 * 6e-8 of an angle is its own error.
        torch.testing.assert_close(found, expected[0].transpose(0, 1), rtol=1e-4, atol=3e-4)


def test_a_dynamic_context_beyond_the_trained_one_is_transformers() -> None:
    """Only whoever asks for more than the trained context gets it; frequencies are then those of its end."""
    for context in (MAX_POSITIONS + 1, 2 * MAX_POSITIONS, 4 * MAX_POSITIONS):
        config = llama_config("dynamic")
        module = LlamaRotaryEmbedding(config)
        module(torch.zeros(1), torch.arange(context).unsqueeze(0))
        found = inverse_frequencies(architecture(config), context)
        torch.testing.assert_close(found, module.inv_freq.double(), rtol=1e-6, atol=0)
    assert architecture(llama_config("dynamic")).longest_context_tokens == 4 * MAX_POSITIONS


@pytest.mark.parametrize(("kind", "longest"), [("default", 512), ("linear", 512), ("yarn", 512), ("longrope", 512)])
def test_no_other_kind_goes_beyond_its_context(kind: str, longest: int) -> None:
    assert architecture(llama_config(kind)).longest_context_tokens == longest


def test_yarn_may_be_asked_for_the_context_it_stretches_to() -> None:
    """Qwen's instructions add the scaling and leave `max_position_embeddings` at the trained context."""
    shape = architecture(llama_config("yarn", max_position_embeddings=128))
    assert (shape.max_position_embeddings, shape.longest_context_tokens) == (128, 512)


@pytest.mark.parametrize("kind", KINDS)
def test_an_angle_depends_on_its_position_alone(kind: str) -> None:
    """Keys in the cache are rotated once: whatever is computed after or beside them must not change their angle."""
    rotary = Rotary(architecture(llama_config(kind)), MAX_POSITIONS, torch.float32, CPU)
    early = rotary.tables(torch.arange(8))
    late = rotary.tables(torch.tensor([MAX_POSITIONS - 1, *range(8)]))
    again = rotary.tables(torch.arange(8))
    for first, second, third in zip(early, late, again, strict=True):
        assert torch.equal(first, second[1:])
        assert torch.equal(first, third)


def test_a_long_context_keeps_its_angles() -> None:
    """At position 131,071 a float32 angle would be off by a hundredth; ours are made in float64."""
    shape = architecture(llama_config("llama3"))
    last = 131_071
    x = torch.randn(1, 3, shape.head_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rotary = Rotary(shape, last + 1, torch.float32, CPU)
    half = shape.head_dim // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones(half, dtype=torch.float64), last * inverse_frequencies(shape, last + 1)
    )
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    found = rotate(x.float(), *rotary.tables(torch.tensor([last])))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_factors_divide_each_frequency_by_its_own() -> None:
    factors = (1.0, 1.0, 2.5, 32.0)
    plain = inverse_frequencies(replace(by_factors(*factors), rope_scaling=RopeScaling()), 8)
    found = inverse_frequencies(by_factors(*factors), 8)
    assert found.dtype is torch.float64
    assert found.tolist() == [frequency / factor for frequency, factor in zip(plain.tolist(), factors, strict=True)]


def test_factors_can_say_what_llama3_says() -> None:
    """A GGUF of Llama 3.1 carries factors where the folder carries five numbers."""
    shape = architecture(llama_config("llama3"))
    plain = replace(shape, rope_scaling=RopeScaling())
    factors = tuple((inverse_frequencies(plain, 8) / inverse_frequencies(shape, 8)).tolist())
    by_table = replace(shape, rope_scaling=RopeScaling(kind="factors", frequency_factors=factors))
    torch.testing.assert_close(inverse_frequencies(by_table, 8), inverse_frequencies(shape, 8), rtol=1e-15, atol=0)


def test_tables_have_the_dtype_of_the_model() -> None:
    rotary = Rotary(architecture(llama_config("default")), 8, torch.bfloat16, CPU)
    cos, sin = rotary.tables(torch.tensor([3, 0]))
    assert cos.dtype is sin.dtype is torch.bfloat16
    assert cos.shape == sin.shape == (2, 1, 64)


def test_tables_made_in_slices_have_no_seam() -> None:
    """Against angles of single positions, in a context of several slices."""
    shape = architecture(llama_config("yarn"))
    rotary = Rotary(shape, 10_000, torch.float32, CPU)
    positions = torch.tensor([0, 4095, 4096, 4097, 8191, 8192, 9999])
    cos, sin = rotary.tables(positions)
    angles = positions.double().unsqueeze(1) * inverse_frequencies(shape, 10_000)
    magnitude = shape.rope_scaling.attention_factor
    torch.testing.assert_close(cos[:, 0, :32].double(), angles.cos() * magnitude, rtol=0, atol=1e-6)
    torch.testing.assert_close(sin[:, 0, 32:].double(), angles.sin() * magnitude, rtol=0, atol=1e-6)
    assert torch.equal(cos[:, 0, :32], cos[:, 0, 32:])
    assert torch.equal(sin[:, 0, :32], -sin[:, 0, 32:])
