"""Folders as transformers saves them give the same tensors that transformers loads."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from engine.errors import ModelError
from engine.weights.source import open_weights
from tests.engine.weights.conftest import OpenSource
from tests.fakes.tiny_llama import save_folder, tiny_llama

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"


def check_against_transformers(folder: Path) -> None:
    """The embedding and the head that our source means are those that transformers ends up with."""
    reference = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    source = open_weights(folder)
    head = EMBEDDING if source.architecture.tie_word_embeddings else HEAD
    found = {name: source.tensor(name, torch.float32) for name in source.tensor_names()}
    assert torch.equal(found[head], reference[HEAD])
    for name in found:
        assert torch.equal(found[name], reference[name]), name
    assert set(reference) - set(found) <= {HEAD}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="untied"),
        pytest.param({"tie_word_embeddings": True}, id="tied"),
        pytest.param({"attention_bias": True, "mlp_bias": True}, id="biases"),
        pytest.param({"head_dim": 32}, id="wide heads"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"max_shard_size": "30KB"}], ids=["one file", "shards"])
def test_folder_gives_what_transformers_loads(tmp_path: Path, changes: dict[str, Any], options: dict[str, Any]) -> None:
    folder = save_folder(tiny_llama(**changes), tmp_path / "tiny", **options)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == bool(options)
    check_against_transformers(folder)


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bfloat16"), (torch.float16, "float16")])
def test_dtype_is_named_and_converted(open_source: OpenSource, tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    model = tiny_llama()
    source = open_source(save_folder(model.to(dtype), tmp_path / "tiny"))
    assert source.quantization == name
    tensor = source.tensor("model.norm.weight", dtype)
    assert torch.equal(tensor, model.model.norm.weight)
    before = tensor.clone()
    tensor.zero_()
    assert torch.equal(source.tensor("model.norm.weight", dtype), before)


def edit_tensors(folder: Path, **changes: torch.Tensor | None) -> Path:
    """Replace, add or (None) drop tensors; "__" stands for a dot."""
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def edit_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.fixture
def tied_folder(tmp_path: Path) -> Path:
    return save_folder(tiny_llama(tie_word_embeddings=True), tmp_path / "tied")


@pytest.fixture
def untied_folder(tmp_path: Path) -> Path:
    return save_folder(tiny_llama(), tmp_path / "untied")


def test_tied_flag_with_an_equal_head(open_source: OpenSource, tied_folder: Path) -> None:
    edit_tensors(tied_folder, lm_head__weight=load_file(tied_folder / "model.safetensors")[EMBEDDING].clone())
    assert open_source(tied_folder).architecture.tie_word_embeddings
    check_against_transformers(tied_folder)


def test_tied_flag_with_another_head(open_source: OpenSource, tied_folder: Path) -> None:
    edit_tensors(tied_folder, lm_head__weight=torch.ones(96, 64))
    assert not open_source(tied_folder).architecture.tie_word_embeddings
    check_against_transformers(tied_folder)


def test_tied_flag_with_only_a_head(tied_folder: Path) -> None:
    edit_tensors(tied_folder, model__embed_tokens__weight=None, lm_head__weight=torch.randn(96, 64))
    check_against_transformers(tied_folder)


def test_untied_flag_without_a_head_is_refused(open_source: OpenSource, untied_folder: Path) -> None:
    """transformers reports it as missing and draws a random one: there is nothing to be equal to."""
    edit_tensors(untied_folder, lm_head__weight=None)
    with pytest.raises(ModelError, match=r'no lm_head.weight.*"tie_word_embeddings": true'):
        open_source(untied_folder)
    edit_config(untied_folder, tie_word_embeddings=True)
    check_against_transformers(untied_folder)


def test_asking_for_a_tied_head_is_an_error(open_source: OpenSource, tied_folder: Path) -> None:
    with pytest.raises(ModelError, match=f"no tensor {HEAD}"):
        open_source(tied_folder).tensor(HEAD, torch.float32)


def test_end_tokens_of_both_files(open_source: OpenSource, untied_folder: Path) -> None:
    edit_config(untied_folder, eos_token_id=7)
    (untied_folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert open_source(untied_folder).architecture.eos_token_ids == (7, 9)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architectures": ["LfmForCausalLM"], "model_type": "lfm"}, "architecture LfmForCausalLM; only the Llama"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification; only the Llama"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by awq, which cannot be read"),
        ({"hidden_act": "gelu"}, "the activation gelu"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers is 'two'"),
        ({"num_hidden_layers": 3}, "no tensor model.layers.2.input_layernorm.weight"),
        ({"vocab_size": 97}, r"has the shape \[96, 64\] where the model needs \[97, 64\]"),
        ({"rope_parameters": {"rope_type": "mrope", "rope_theta": 1e4, "factor": 2.0}}, "rope scaling 'mrope'"),
    ],
)
def test_what_cannot_run_is_refused_at_once(
    open_source: OpenSource, untied_folder: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        open_source(edit_config(untied_folder, **changes))


def test_missing_and_broken_files(open_source: OpenSource, untied_folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match=r"has no config.json"):
        open_source(empty)
    shutil.copy(untied_folder / "config.json", empty)
    with pytest.raises(ModelError, match=r"has no \*.safetensors"):
        open_source(empty)
    (empty / "config.json").write_text("{ nothing")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        open_source(empty)
    (empty / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="holds no JSON object"):
        open_source(empty)
    weights = untied_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match="damaged or incomplete"):
        open_source(untied_folder)


def test_missing_shard_is_named(open_source: OpenSource, tmp_path: Path) -> None:
    folder = save_folder(tiny_llama(), tmp_path / "tiny", max_shard_size="30KB")
    shard = min(folder.glob("*.safetensors"))
    shard.unlink()
    with pytest.raises(ModelError, match=f"lacks the file {shard.name}"):
        open_source(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelError, match="have no tensor"):
        open_source(folder)


def test_integer_weights_are_refused(open_source: OpenSource, untied_folder: Path) -> None:
    edit_tensors(untied_folder, model__norm__weight=torch.ones(64, dtype=torch.int32))
    with pytest.raises(ModelError, match="stored as I32, which cannot be read"):
        open_source(untied_folder)
