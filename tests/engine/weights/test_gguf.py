"""GGUF files that a test wrote from a transformers model give that model's tensors back."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.architecture import RopeScaling
from engine.errors import ModelError
from engine.weights.names import gguf_name, hugging_face_name
from tests.engine.weights.conftest import OpenSource
from tests.fakes.tiny_checkpoint import tiny_checkpoint
from tests.fakes.tiny_llama import head_dim_of, save_gguf, tiny_llama

Kind = gguf.GGMLQuantizationType
BIASED = {"attention_bias": True, "mlp_bias": True}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="untied"),
        pytest.param({"tie_word_embeddings": True}, id="tied"),
        pytest.param(BIASED, id="biases"),
        pytest.param({"head_dim": 32}, id="wide heads"),
        pytest.param({"num_key_value_heads": 4}, id="multi-head"),
    ],
)
def test_round_trip(open_source: OpenSource, tmp_path: Path, changes: dict[str, Any]) -> None:
    model = tiny_llama(**changes)
    source = open_source(save_gguf(model, tmp_path / "tiny.gguf"))
    expected = model.state_dict()
    if model.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    assert set(source.tensor_names()) == set(expected)
    for name, tensor in expected.items():
        found = source.tensor(name, torch.float32)
        assert torch.equal(found, tensor), name
        assert found.is_contiguous()
    architecture = source.architecture
    assert architecture.tie_word_embeddings == model.config.tie_word_embeddings
    assert architecture.head_dim == model.config.head_dim
    assert architecture.num_kv_heads == model.config.num_key_value_heads
    assert architecture.vocab_size == model.config.vocab_size
    assert architecture.attention_bias == architecture.attention_output_bias == model.config.attention_bias
    assert architecture.mlp_bias == model.config.mlp_bias
    assert architecture.rms_norm_eps == pytest.approx(model.config.rms_norm_eps)
    source.close()
    source.close()


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.F16, Kind.BF16])
def test_quantised_round_trip(open_source: OpenSource, tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """What the library quantised comes back as the library dequantises it, rows of q and k in their old order."""
    model = tiny_llama()
    source = open_source(save_gguf(model, tmp_path / "tiny.gguf", kind=kind))
    assert source.quantization == kind.name
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        if data.ndim == 2:
            data = gguf.quants.dequantize(gguf.quants.quantize(data, kind), kind)
        assert np.array_equal(source.tensor(name, torch.float32).numpy(), data), name


@pytest.mark.starter
def test_starter_equals_the_library(open_source: OpenSource, starter_gguf: Path) -> None:
    source = open_source(starter_gguf)
    assert source.quantization == "Q4_1"
    assert source.architecture.name == "SmolLM2-135M-Instruct"
    assert source.architecture.eos_token_ids[0] == 2
    stored = {hugging_face_name(tensor.name): tensor for tensor in gguf.GGUFReader(starter_gguf).tensors}
    assert set(source.tensor_names()) == set(stored)
    for part in ("mlp.down_proj", "self_attn.v_proj", "input_layernorm"):
        name = f"model.layers.29.{part}.weight"
        expected = gguf.quants.dequantize(stored[name].data, stored[name].tensor_type)
        assert np.array_equal(source.tensor(name, torch.float32).numpy(), expected)


def test_a_tensor_is_no_view_of_the_file(open_source: OpenSource, tmp_path: Path) -> None:
    source = open_source(save_gguf(tiny_llama(), tmp_path / "tiny.gguf"))
    first = source.tensor("model.norm.weight", torch.float32)
    before = first.clone()
    first.zero_()
    assert torch.equal(source.tensor("model.norm.weight", torch.float32), before)


def test_names_go_both_ways() -> None:
    names = list(tiny_llama(**BIASED).state_dict())
    assert [hugging_face_name(gguf_name(name) or "") for name in names] == names
    assert gguf_name("model.layers.0.self_attn.rotary_emb.inv_freq") is None
    assert hugging_face_name("rope_freqs.weight") is None


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        pytest.param("qwen2", {}, id="qwen2"),
        pytest.param("qwen2", {"tie_word_embeddings": True}, id="qwen2 tied"),
        pytest.param("qwen3", {}, id="qwen3"),
        pytest.param("qwen3", {"head_dim": 8, "attention_bias": True}, id="qwen3, biases and narrow heads"),
        pytest.param("mistral", {"sliding_window": 8}, id="mistral"),
    ],
)
def test_other_families_round_trip(
    open_source: OpenSource, tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    """Only Llama's q and k change their order in ggml, and Mistral goes as Llama."""
    model = tiny_checkpoint(family, **changes)
    source = open_source(save_gguf(model, tmp_path / "tiny.gguf"))
    expected = model.state_dict()
    if model.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    assert set(source.tensor_names()) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(source.tensor(name, torch.float32), tensor), name
    assert source.architecture.family == ("llama" if family == "mistral" else family)
    assert source.architecture.head_dim == head_dim_of(model.config)
    assert source.architecture.qk_norm == (family == "qwen3")
    assert source.architecture.layer_windows == ()
    assert source.architecture.num_parameters == model.num_parameters()


def test_names_lose_the_quantisation_at_their_end(open_source: OpenSource, tmp_path: Path) -> None:
    for stem in ("My-Model-7B.Q8_0", "My-Model-7B-q8_0", "My-Model-7B_Q8_0"):
        source = open_source(save_gguf(tiny_llama(), tmp_path / f"{stem}.gguf", kind=Kind.Q8_0))
        assert source.architecture.name == "My-Model-7B"


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, ()),
        ({"attention.sliding_window": 0}, ()),
        ({"attention.sliding_window": 8}, (8, 8)),
        ({"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, False]}, (8, None)),
    ],
)
def test_windows(
    open_source: OpenSource, tmp_path: Path, extra: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    fields = {f"{{arch}}.{key}": value for key, value in extra.items()}
    for family in ("mistral", "qwen3"):
        source = open_source(save_gguf(tiny_checkpoint(family), tmp_path / f"{family}.gguf", extra=fields))
        assert source.architecture.layer_windows == expected


def test_every_end_token_is_found(open_source: OpenSource, tmp_path: Path) -> None:
    tokens = [f"t{number}" for number in range(96)]
    tokens[40], tokens[41] = "<|eot_id|>", "<|im_end|>"
    kinds = [1] * 96
    kinds[40] = 3  # a control token; 41 is a word that only looks like one
    extra = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.eos_token_id": 7,
        "tokenizer.ggml.eot_token_id": 9,
    }
    source = open_source(save_gguf(tiny_llama(), tmp_path / "tiny.gguf", extra=extra))
    assert source.architecture.eos_token_ids == (7, 9, 40)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, RopeScaling()),
        ({"llama.rope.scaling.type": "none"}, RopeScaling()),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, RopeScaling(kind="linear", factor=4)),
        ({"llama.rope.scale_linear": 2.0}, RopeScaling(kind="linear", factor=2)),
    ],
)
def test_rope_scaling(open_source: OpenSource, tmp_path: Path, extra: dict[str, Any], expected: RopeScaling) -> None:
    source = open_source(save_gguf(tiny_llama(), tmp_path / "tiny.gguf", extra=extra))
    assert source.architecture.rope_scaling == expected


def test_rope_factors_are_read_from_their_tensor(open_source: OpenSource, tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    path = save_gguf(tiny_llama(), tmp_path / "tiny.gguf", tensors={"rope_freqs.weight": factors})
    source = open_source(path)
    assert source.architecture.rope_scaling == RopeScaling(kind="factors", frequency_factors=tuple(factors.tolist()))
    assert "rope_freqs.weight" not in set(source.tensor_names())
    path = save_gguf(tiny_llama(), tmp_path / "short.gguf", tensors={"rope_freqs.weight": factors[:7]})
    with pytest.raises(ModelError, match=r"7 factors in float32 where the model needs 8"):
        open_source(path)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"general.architecture": "gemma3"}, "the architecture 'gemma3'; only the Llama family"),
        ({"split.count": 3}, "one of 3 parts of a model"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.rope.scaling.type": "mrope"}, "rope scaling 'mrope', which cannot be computed"),
        ({"llama.rope.scaling.type": "longrope"}, "no tensor rope_factors_long.weight"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": -1.0}, "scaling.factor has the value -1"),
        ({"llama.attention.sliding_window": 8, "llama.attention.sliding_window_pattern": 2}, "pattern has the value 2"),
        ({"llama.attention.head_count_kv": 3}, "llama.attention.head_count_kv has the value 3"),
        ({"llama.attention.head_count": None}, "llama.attention.head_count is missing"),
        ({"llama.attention.head_count": [4, 2]}, "llama.attention.head_count has the value"),
        ({"llama.rope.dimension_count": 8}, "heads of 16 with rope.dimension_count 8"),
        ({"llama.block_count": 3}, r"no tensor model.layers.2.input_layernorm.weight \(blk.2.attn_norm.weight in"),
        ({"llama.feed_forward_length": 100}, r"has the shape \[96, 64\] where the model needs \[100, 64\]"),
    ],
)
def test_what_cannot_run_is_refused_at_once(
    open_source: OpenSource, tmp_path: Path, extra: dict[str, Any], sentence: str
) -> None:
    path = save_gguf(tiny_llama(), tmp_path / "tiny.gguf", extra=extra)
    with pytest.raises(ModelError, match=sentence):
        open_source(path)


@pytest.mark.parametrize("kind", [Kind.TQ1_0, Kind.TQ2_0, Kind.MXFP4], ids=lambda kind: kind.name)
def test_unsupported_quantisation_is_named(
    open_source: OpenSource, tmp_path: Path, kind: gguf.GGMLQuantizationType
) -> None:
    model = tiny_llama(hidden_size=256, intermediate_size=256)
    path = save_gguf(model, tmp_path / "tiny.gguf", kind=kind)
    with pytest.raises(ModelError, match=f"quantised as {kind.name}, which cannot be read"):
        open_source(path)


def test_missing_file_truncated_file_and_unknown_tensor(open_source: OpenSource, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no file or folder"):
        open_source(tmp_path / "nothing.gguf")
    path = save_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    source = open_source(path)
    with pytest.raises(ModelError, match=r"no tensor model.layers.9.mlp.up_proj.weight"):
        source.tensor("model.layers.9.mlp.up_proj.weight", torch.float32)
    source.close()
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="damaged or incomplete"):
        open_source(path)


def test_a_file_that_shrinks_while_open_is_noticed(open_source: OpenSource, tmp_path: Path) -> None:
    path = save_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    source = open_source(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5000)
    last = list(source.tensor_names())[-1]
    with pytest.raises(ModelError, match="became shorter"):
        source.tensor(last, torch.float32)
