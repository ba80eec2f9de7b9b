"""What cannot be run is refused in one sentence, before memory is touched, and is not listed either.

Each case is a model that transformers or the gguf library wrote, with one thing changed.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine import loader
from engine.catalog.local import ModelFolders, check_header, list_models
from engine.config import EngineConfig
from engine.errors import ModelError, UsageError
from engine.model.rotary import inverse_frequencies
from engine.weights.config_json import architecture_from_config
from engine.weights.source import open_weights
from tests.fakes.tiny_llama import save_gguf
from tests.fakes.tiny_model import chat_folder, chat_gguf, tiny_chat_model, tiny_config, tiny_engine

Change = Callable[[Path], None]


def config(**changes: Any) -> Change:
    """Replace keys of config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    """Change the file's tensors."""

    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        stored = {name: tensor.clone() for name, tensor in load_file(path).items()}
        change(stored)
        save_file(stored, path, metadata={"format": "pt"})

    return apply


def gptq(stored: dict[str, torch.Tensor]) -> None:
    for name in [name for name in stored if "proj" in name]:
        del stored[name]
        stored[name.replace(".weight", ".qweight")] = torch.zeros(8, 8, dtype=torch.int32)


def only_pickles(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def only_gguf(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    chat_gguf(tiny_chat_model(), folder / "inside.gguf")


def cut_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def lost_shard(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    names = {name: f"model-0000{number % 2 + 1}-of-00002.safetensors" for number, name in enumerate(stored)}
    first = {name: tensor for name, tensor in stored.items() if names[name].startswith("model-00001")}
    save_file(first, folder / "model-00001-of-00002.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "model.safetensors").unlink()


FOLDERS: dict[str, tuple[Change, str]] = {
    "AWQ": (config(quantization_config={"quant_method": "awq", "bits": 4}), "is quantised by awq"),
    "GPTQ": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "is quantised by gptq"),
    "bitsandbytes": (config(quantization_config={"quant_method": "bitsandbytes"}), "is quantised by bitsandbytes"),
    "FP8": (config(quantization_config={"quant_method": "fp8"}), "is quantised by fp8"),
    "compressed": (config(compression_config={"format": "pack"}), "is quantised by an unnamed method"),
    "GPTQ, not said in config.json": (tensors(gptq), r"are quantised \(.*qweight\)"),
    "an older GPTQ": (config(quantization_config=True), "is quantised by unknown"),
    "8 bits": (tensors(lambda stored: stored.update(
        {"model.norm.weight": torch.ones(64).to(torch.float8_e4m3fn)})), "are stored as F8_E4M3"),
    "whole numbers": (tensors(lambda stored: stored.update(
        {"model.norm.weight": torch.ones(64, dtype=torch.int32)})), "are stored as I32"),
    "LFM": (config(architectures=["LfmForCausalLM"], model_type="lfm"), "architecture LfmForCausalLM; only the Llama"),
    "Mixtral": (config(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=8),
                "MixtralForCausalLM, a mixture of experts; only"),
    "Qwen3 MoE": (config(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_experts=128),
                  "Qwen3MoeForCausalLM, a mixture of experts; only"),
    "Qwen2-VL": (config(architectures=["Qwen2VLForConditionalGeneration"], model_type="qwen2_vl"), "Qwen2VL"),
    "a class of another family": (config(architectures=["Qwen2ForCausalLM"]), "architecture Qwen2ForCausalLM; only"),
    "another head": (config(architectures=["LlamaForSequenceClassification"]), "LlamaForSequenceClassification; only"),
    "neither type nor class": (config(architectures=None, model_type=None), "the architecture None; only"),
    "another activation": (config(hidden_act="gelu"), "the activation gelu"),
    "an unknown rope": (config(rope_parameters={"rope_type": "mrope"}), "rope scaling 'mrope'"),
    "a part of each head": (config(partial_rotary_factor=0.5), "rotates only a part of each head"),
    "odd heads": (config(head_dim=15), "heads of 15 channels"),
    "uneven groups": (config(num_key_value_heads=3), "4 heads cannot share 3"),
    "another size": (config(hidden_size=128), r"has the shape \[320, 64\] where the model needs \[320, 128\]"),
    "a layer too many": (config(num_hidden_layers=3), "no tensor model.layers.2"),
    "no head": (tensors(lambda stored: stored.pop("lm_head.weight")), "no lm_head.weight"),
    "neither table": (tensors(lambda stored: [stored.pop(name) for name in (
        "lm_head.weight", "model.embed_tokens.weight")]), "no tensor model.embed_tokens.weight"),
    "pickles": (only_pickles, r"has no \*.safetensors files, only pytorch_model.bin"),
    "a GGUF file inside": (only_gguf, "has no config.json"),
    "a cut file": (cut_file, "is damaged or incomplete"),
    "a lost shard": (lost_shard, "lacks the file model-00002-of-00002.safetensors"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
}  # fmt: skip
GGUFS: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"general.architecture": "gemma3"}, "the architecture 'gemma3'; only the Llama"),
    "a part of a projector": ({"general.architecture": "clip"}, "the architecture 'clip'; only the Llama"),
    "experts": ({"llama.expert_count": 8}, "mixture of experts"),
    "a part of a model": ({"split.count": 2}, "one of 2 parts"),
    "an unknown rope": ({"llama.rope.scaling.type": "mrope"}, "rope scaling 'mrope'"),
    "an unknown tokenizer": ({"tokenizer.ggml.model": "t5"}, "a tokenizer of the kind 't5'"),
    "an unknown cut of text": ({"tokenizer.ggml.pre": "klingon"}, "by the rule 'klingon'"),
    "no vocabulary": ({"tokenizer.ggml.tokens": None}, "no field tokenizer.ggml.tokens"),
    "a layer too many": ({"llama.block_count": 3}, "no tensor model.layers.2"),
}


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tiny_chat_model(), tmp_path_factory.mktemp("good") / "tiny")


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is planned, read or allocated."""

    def touched(*_arguments: object, **_options: object) -> None:
        raise AssertionError("memory was touched")

    for name in ("plan_cache", "load_decoder", "KVCache"):
        monkeypatch.setattr(loader, name, touched)


def listed(models: Path) -> list[Path]:
    elsewhere = models.parent / "nowhere"
    return [model.path for model in list_models(ModelFolders(cache=elsewhere, models=models, hf_hub=elsewhere))]


def assert_refused(path: Path, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence) as caught:
        loader.load_model(tiny_config(path), lambda _progress: None)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", ")"))
    with pytest.raises(ModelError, match=sentence):
        check_header(path)
    assert listed(path.parent) == []


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name: str, good_folder: Path, tmp_path: Path) -> None:
    change, sentence = FOLDERS[name]
    folder = shutil.copytree(good_folder, tmp_path / "models" / "tiny")
    change(folder)
    assert_refused(folder, sentence)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("name", GGUFS)
def test_files(name: str, tmp_path: Path) -> None:
    fields, sentence = GGUFS[name]
    (tmp_path / "models").mkdir()
    assert_refused(chat_gguf(tiny_chat_model(), tmp_path / "models" / "tiny.gguf", extra=fields), sentence)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("kind", ["TQ1_0", "TQ2_0", "MXFP4"])
def test_other_kinds_of_blocks(kind: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model = tiny_chat_model(hidden_size=256, intermediate_size=256)
    path = save_gguf(model, tmp_path / "models" / "tiny.gguf", kind=gguf.GGMLQuantizationType[kind])
    assert_refused(path, f"quantised as {kind}, which cannot be read")


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_what_is_listed_loads(family: str, tmp_path: Path) -> None:
    model = tiny_chat_model(family)
    models = tmp_path / "models"
    models.mkdir()
    folder, file = chat_folder(model, models / "folder"), chat_gguf(model, models / "file.gguf")
    assert listed(models) == [file, folder]
    for path in (file, folder):
        engine = tiny_engine(path)
        assert engine.info.num_parameters == model.num_parameters()
        engine.close()


def test_a_folder_that_holds_a_file_says_which(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    only_gguf(folder)
    with pytest.raises(ModelError, match=r"choose the file inside\.gguf in it"):
        open_weights(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5000) | st.floats(-2, 1e6) | st.sampled_from(["yarn", "default", "x"]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(["type", "factor", "x"]), values),
    max_leaves=4,
)
VALID: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
KEYS = (
    *VALID, "architectures", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps",
    "rope_theta", "rope_scaling", "rope_parameters", "original_max_position_embeddings", "attention_bias", "mlp_bias",
    "tie_word_embeddings", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "hidden_act",
    "quantization_config", "bos_token_id", "eos_token_id", "model_type", "partial_rotary_factor",
)  # fmt: skip


@settings(max_examples=400)
@given(
    family=st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3),
)
def test_whatever_a_config_says_is_a_shape_or_a_model_error(family: str, changes: dict[str, Any]) -> None:
    try:
        shape = architecture_from_config(VALID | {"model_type": family} | changes, name="tiny")
    except ModelError:
        return
    assert shape.num_parameters > 0
    assert len(shape.layer_windows) in (0, shape.num_layers)


ROPE_KEYS = ("factor", "rope_theta", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
             "mscale_all_dim", "attention_factor", "truncate", "low_freq_factor", "high_freq_factor",
             "short_factor", "long_factor")  # fmt: skip


@settings(max_examples=400)
@given(
    kind=st.sampled_from(["linear", "dynamic", "llama3", "yarn", "longrope"]),
    changes=st.dictionaries(st.sampled_from(ROPE_KEYS), JSON | st.just([1.5] * 8), max_size=6),
)
def test_whatever_a_rope_says_is_finite_or_a_model_error(kind: str, changes: dict[str, Any]) -> None:
    config = VALID | {"model_type": "llama", "rope_scaling": {"rope_type": kind} | changes}
    try:
        shape = architecture_from_config(config, name="tiny")
    except ModelError:
        return
    for context in (8, 4096):
        assert inverse_frequencies(shape, context).isfinite().all()
    assert np.isfinite(shape.rope_scaling.attention_factor)
    assert shape.longest_context_tokens >= shape.max_position_embeddings


def test_an_index_may_name_anything(good_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good_folder, tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    for weight_map in ({}, [], None, {"a": 7}, {"a": None}):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ModelError, match="names no files"):
            open_weights(folder)


def test_random_weights_need_no_file() -> None:
    """A name that is no shape is the user's mistake, too."""
    with pytest.raises(UsageError, match="There is no shape called"):
        loader.load_model(EngineConfig(model="", random_weights="qwen9", device="cpu"), lambda _progress: None)
