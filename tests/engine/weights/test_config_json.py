"""Rope parameters in both spellings mean what transformers takes them for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.errors import ModelError
from engine.model.rotary import inverse_frequencies
from engine.weights.config_json import architecture_from_config, architecture_from_folder
from tests.fakes.tiny_checkpoint import FAMILIES
from tests.fakes.tiny_llama import head_dim_of

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
YARN = {"factor": 4.0, "original_max_position_embeddings": 512, "mscale": 0.9, "mscale_all_dim": 0.5}
LONGROPE = {
    "short_factor": [1.0 + pair / 100 for pair in range(32)],
    "long_factor": [1.0 + pair for pair in range(32)],
    "original_max_position_embeddings": 512,
}


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
        pytest.param({"rope_scaling": {"type": "dynamic", "factor": 4.0}, "rope_theta": 2e4}, id="old dynamic"),
        pytest.param({"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 2e4}}, id="new dynamic"),
        pytest.param({"rope_scaling": {"type": "yarn"} | YARN, "rope_theta": 1e6}, id="old yarn"),
        pytest.param({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6} | YARN}, id="new yarn"),
        pytest.param(
            {"rope_scaling": {"type": "yarn", "factor": 2.0}, "original_max_position_embeddings": 512},
            id="yarn, original context outside",
        ),
        pytest.param(
            {"rope_scaling": {"type": "yarn"} | YARN, "original_max_position_embeddings": 256},
            id="yarn, original context in both places",
        ),
        pytest.param({"rope_scaling": {"type": "longrope"} | LONGROPE, "rope_theta": 1e6}, id="old longrope"),
        pytest.param({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e6} | LONGROPE}, id="new longrope"),
        pytest.param(
            {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_type": "default"}},
            id="both spellings",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "default", "rope_theta": 3e4}, "rope_theta": 2e4}, id="two thetas"
        ),
    ],
)
def test_frequencies_are_those_of_transformers(rope: dict[str, Any]) -> None:
    config = json.loads(json.dumps(BASE | rope))
    reference = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
    read = architecture_from_config(config, name="tiny")
    found = inverse_frequencies(read, 16)
    torch.testing.assert_close(found.float(), reference.inv_freq, rtol=1e-6, atol=0)
    assert read.rope_scaling.attention_factor == pytest.approx(reference.attention_scaling, rel=1e-12)


@pytest.mark.parametrize("kind", ["su", "mrope", "proportional", "axial", "ntk", 7, ["yarn"]])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_other_scalings_are_refused(kind: object, key: str, spelling: str) -> None:
    with pytest.raises(ModelError, match=re.escape(f"rope scaling {kind!r}, which cannot be computed")):
        architecture_from_config(BASE | {key: {spelling: kind, "factor": 2.0}}, name="tiny")


@pytest.mark.parametrize(
    ("rope", "sentence"),
    [
        ({"type": "linear"}, "rope scaling 'linear' without saying factor"),
        ({"type": "dynamic"}, "rope scaling 'dynamic' without saying factor"),
        ({"type": "yarn"}, "rope scaling 'yarn' without saying factor"),
        ({"type": "linear", "factor": "4"}, "factor is '4'"),
        ({"type": "linear", "factor": 0}, "factor is 0"),
        ({"type": "yarn"} | YARN | {"original_max_position_embeddings": 1.5}, "max_position_embeddings is 1.5"),
        ({"type": "yarn"} | YARN | {"truncate": 1}, "truncate is 1"),
        ({"type": "yarn"} | YARN | {"beta_fast": -1}, "beta_fast is -1"),
        ({"type": "llama3"} | LLAMA3 | {"high_freq_factor": 1.0}, "high_freq_factor is 1.0"),
        ({"type": "longrope", "short_factor": [1.0] * 32}, "its long_factor is no list of 32 numbers"),
        ({"type": "longrope"} | LONGROPE | {"short_factor": [1.0]}, "its short_factor is no list of 32 numbers"),
        ({"type": "longrope"} | LONGROPE | {"long_factor": ["1"] * 32}, "its long_factor is no list of 32 numbers"),
        ({"full_attention": {"type": "default"}}, "each in its own way"),
        (["linear"], r"rope_scaling is \['linear'\]"),
        ({"type": "default", "rope_theta": 1.0}, "rope_theta is 1.0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(rope: object, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        architecture_from_config(BASE | {"rope_scaling": rope}, name="tiny")


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


@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """Everything that a file may leave out."""
    kind = FAMILIES[family]
    config = BASE | {"model_type": family, "architectures": [kind.model_class.__name__], "num_attention_heads": 32}
    del config["max_position_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    reference = kind.config_class(**config)
    read = architecture_from_folder(tmp_path)
    assert read.family == family
    assert read.num_kv_heads == reference.num_key_value_heads
    assert read.head_dim == head_dim_of(reference)
    assert read.max_position_embeddings == reference.max_position_embeddings
    assert read.rms_norm_eps == reference.rms_norm_eps
    assert read.rope_theta == reference.rope_parameters["rope_theta"]
    assert read.tie_word_embeddings == reference.tie_word_embeddings
    with torch.device("meta"):
        names = dict(kind.model_class(reference).named_parameters())
    prefix = "model.layers.0"
    assert read.attention_bias == (f"{prefix}.self_attn.q_proj.bias" in names)
    assert read.attention_output_bias == (f"{prefix}.self_attn.o_proj.bias" in names)
    assert read.mlp_bias == (f"{prefix}.mlp.up_proj.bias" in names)
    assert read.qk_norm == (f"{prefix}.self_attn.q_norm.weight" in names)
    assert read.eos_token_ids == (() if reference.eos_token_id is None else (reference.eos_token_id,))


def test_a_default_end_token_stands_only_where_no_file_says_one() -> None:
    assert architecture_from_config(BASE, {"eos_token_id": [7, 9]}, name="tiny").eos_token_ids == (7, 9)
    assert architecture_from_config(BASE, {}, name="tiny").eos_token_ids == (2,)


def test_a_snapshot_is_called_by_its_repository(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--Model" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(BASE))
    assert architecture_from_folder(snapshot).name == "org/Model"
