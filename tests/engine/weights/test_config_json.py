"""Rope parameters in both spellings mean what transformers takes them for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.weights.config_json import architecture_from_config, architecture_from_folder

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 256,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}


def inverse_frequencies(architecture: ModelArchitecture) -> torch.Tensor:
    """From our values, after the formulas of the Llama 3.1 reference code and of position interpolation."""
    scaling = architecture.rope_scaling
    exponents = torch.arange(0, architecture.head_dim, 2, dtype=torch.float64) / architecture.head_dim
    frequencies = architecture.rope_theta**-exponents
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "llama3":
        turns = scaling.original_max_position_embeddings * frequencies / (2 * torch.pi)
        smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        smooth = smooth.clamp(0, 1)
        return frequencies * (smooth + (1 - smooth) / scaling.factor)
    assert scaling.kind == "default"
    return frequencies


@pytest.mark.parametrize(
    "rope",
    [
        pytest.param({}, id="nothing said"),
        pytest.param({"rope_theta": 500000.0}, id="old theta"),
        pytest.param({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}, id="new theta"),
        pytest.param({"rope_scaling": None, "rope_theta": 250000.0}, id="old without scaling"),
        pytest.param({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 20000.0}, id="oldest linear"),
        pytest.param({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, id="old linear"),
        pytest.param({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 3e4}}, id="new linear"),
        pytest.param({"rope_scaling": {"rope_type": "llama3"} | LLAMA3, "rope_theta": 500000.0}, id="old llama3"),
        pytest.param(
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0} | LLAMA3, "head_dim": 32},
            id="new llama3",
        ),
    ],
)
def test_frequencies_are_those_of_transformers(rope: dict[str, Any]) -> None:
    config = json.loads(json.dumps(BASE | rope))
    reference = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config)))).inv_freq
    found = inverse_frequencies(architecture_from_config(config, name="tiny"))
    torch.testing.assert_close(found.float(), reference, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["dynamic", "yarn", "longrope", "su", "mrope"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_other_scalings_are_refused(kind: str, key: str) -> None:
    with pytest.raises(ModelError, match=f"rope scaling '{kind}', which cannot be computed"):
        architecture_from_config(BASE | {key: {"rope_type": kind, "factor": 2.0}}, name="tiny")


def test_a_scaling_without_its_factor_is_refused() -> None:
    with pytest.raises(ModelError, match="rope scaling 'linear' without saying factor"):
        architecture_from_config(BASE | {"rope_scaling": {"type": "linear"}}, name="tiny")


def test_partial_rotation_is_refused() -> None:
    with pytest.raises(ModelError, match="rotates only a part of each head"):
        architecture_from_config(BASE | {"partial_rotary_factor": 0.5}, name="tiny")


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ([7, 9], 7, (7, 9)),
        (None, [3, 4], (3, 4)),
        (5, 6, (5, 6)),
        (None, None, ()),
    ],
)
def test_every_end_token_is_kept(generation: object, config: object, expected: tuple[int, ...]) -> None:
    read = architecture_from_config(BASE | {"eos_token_id": config}, {"eos_token_id": generation}, name="tiny")
    assert read.eos_token_ids == expected


def test_defaults_are_those_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BASE))
    reference = LlamaConfig(**BASE)
    read = architecture_from_folder(tmp_path)
    assert read.num_kv_heads == reference.num_key_value_heads
    assert read.head_dim == reference.head_dim
    assert read.rms_norm_eps == reference.rms_norm_eps
    assert read.rope_theta == reference.rope_parameters["rope_theta"]
    assert read.tie_word_embeddings == reference.tie_word_embeddings
    assert (read.attention_bias, read.mlp_bias) == (reference.attention_bias, reference.mlp_bias)


def test_a_snapshot_is_called_by_its_repository(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--Model" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(BASE))
    assert architecture_from_folder(snapshot).name == "org/Model"
