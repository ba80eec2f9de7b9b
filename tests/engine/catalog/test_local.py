"""What is found on the machine, and what a name means."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.catalog.local import (
    ModelFolders,
    ModelSource,
    StarterMissingError,
    check_header,
    hf_hub_folder,
    list_models,
    resolve,
)
from engine.catalog.starter import STARTER
from engine.errors import ModelError, UnknownModelError
from tests.fakes.model_file import EMPTY_GGUF

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 8,
    "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "tie_word_embeddings": True,
}  # fmt: skip
SIZES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens": (32, 8), "model.norm": (8,), "model.layers.0.input_layernorm": (8,),
    "model.layers.0.post_attention_layernorm": (8,), "model.layers.0.self_attn.q_proj": (8, 8),
    "model.layers.0.self_attn.k_proj": (4, 8), "model.layers.0.self_attn.v_proj": (4, 8),
    "model.layers.0.self_attn.o_proj": (8, 8), "model.layers.0.mlp.gate_proj": (16, 8),
    "model.layers.0.mlp.up_proj": (16, 8), "model.layers.0.mlp.down_proj": (8, 16),
}  # fmt: skip


@pytest.fixture
def folders(tmp_path: Path) -> ModelFolders:
    return ModelFolders(cache=tmp_path / "cache", models=tmp_path / "models", hf_hub=tmp_path / "hub")


def make_model_folder(folder: Path, config: dict[str, object] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or LLAMA))
    (folder / "tokenizer.json").write_text("{}")
    weights = {f"{name}.weight": np.zeros(shape, np.float16) for name, shape in SIZES.items()}
    save_file(weights, folder / "model.safetensors")
    return folder


def make_gguf(path: Path, data: bytes = EMPTY_GGUF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def make_starter(folders: ModelFolders) -> Path:
    path = folders.cache / "starter" / STARTER.file_name
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(STARTER.size_bytes)
    stamp = {"sha256": STARTER.sha256, "size_bytes": STARTER.size_bytes, "mtime_ns": path.stat().st_mtime_ns}
    path.with_suffix(".verified.json").write_text(json.dumps(stamp))
    return path


def names(folders: ModelFolders) -> list[str]:
    return [model.name for model in list_models(folders)]


def test_nothing_is_found_where_nothing_is(folders: ModelFolders) -> None:
    assert list_models(folders) == ()


def test_all_places_are_searched_and_the_starter_comes_first(folders: ModelFolders) -> None:
    starter = make_starter(folders)
    make_gguf(folders.models / "Zeta.gguf")
    folder = make_model_folder(folders.models / "alpha")
    snapshot = make_model_folder(folders.hf_hub / "models--org--Mid--dle" / "snapshots" / "abc")
    found = list_models(folders)
    assert [(model.name, model.path) for model in found] == [
        (STARTER.name, starter),
        ("alpha", folder),
        ("org/Mid--dle", snapshot),
        ("Zeta", folders.models / "Zeta.gguf"),
    ]
    assert [model.source for model in found][1:] == [
        ModelSource.MODELS_FOLDER, ModelSource.HF_CACHE, ModelSource.MODELS_FOLDER,
    ]  # fmt: skip
    assert found[1].size_bytes == (folder / "model.safetensors").stat().st_size


def test_what_cannot_be_loaded_is_left_out(folders: ModelFolders) -> None:
    make_gguf(folders.models / "foreign.gguf", b"ELF")
    make_gguf(folders.models / "notes.txt", b"GGUF")
    make_model_folder(folders.models / "bert", {"model_type": "bert"})
    (folders.models / "empty").mkdir()
    weights_missing = make_model_folder(folders.hf_hub / "models--org--half" / "snapshots" / "abc")
    (weights_missing / "model.safetensors").unlink()
    (folders.hf_hub / "models--org--none").mkdir()
    broken = make_model_folder(folders.models / "broken")
    (broken / "config.json").write_text("{")
    assert names(folders) == []


def test_the_revision_that_main_names_is_taken(folders: ModelFolders) -> None:
    repository = folders.hf_hub / "models--org--model"
    wanted = make_model_folder(repository / "snapshots" / "aaa")
    make_model_folder(repository / "snapshots" / "bbb")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("aaa\n")
    assert [model.path for model in list_models(folders)] == [wanted]


@pytest.mark.parametrize("name", ["org/Model", "ORG/model", "model"])
def test_a_name_is_found_in_any_case_and_without_its_owner(folders: ModelFolders, name: str) -> None:
    snapshot = make_model_folder(folders.hf_hub / "models--org--Model" / "snapshots" / "abc")
    assert resolve(name, folders) == snapshot


def test_a_path_means_itself(folders: ModelFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_gguf(tmp_path / "here.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(str(path), folders) == path
    assert resolve("here.gguf", folders) == path
    assert resolve("~/here.gguf", folders) == path


def test_an_unknown_name_is_a_sentence(folders: ModelFolders) -> None:
    for name in ("nothing", ""):
        with pytest.raises(UnknownModelError, match="kvscope models list"):
            resolve(name, folders)


@pytest.mark.parametrize("name", ["starter", STARTER.name])
def test_the_starter_by_name(folders: ModelFolders, name: str) -> None:
    with pytest.raises(StarterMissingError, match=f"kvscope models get {STARTER.name}"):
        resolve(name, folders)
    path = make_starter(folders)
    assert resolve(STARTER.name, folders) == path
    assert resolve("starter", folders) == path


def test_the_hub_cache_is_where_its_library_puts_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert hf_hub_folder() == Path("/home/someone/.cache/huggingface/hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert hf_hub_folder() == Path("/c/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/h")
    assert hf_hub_folder() == Path("/h/hub")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert hf_hub_folder() == tmp_path


def test_a_header_tells_what_cannot_be_loaded(tmp_path: Path) -> None:
    for name, data in (("foreign.gguf", b"a letter"), ("cut.gguf", EMPTY_GGUF[:-1]), ("empty.gguf", b"")):
        with pytest.raises(ModelError, match=name):
            check_header(make_gguf(tmp_path / name, data))
    foreign = {**LLAMA, "model_type": "clip", "architectures": ["CLIPModel"]}
    with pytest.raises(ModelError, match="CLIPModel"):
        check_header(make_model_folder(tmp_path / "vision", foreign))
    with pytest.raises(ModelError, match="There is no file"):
        check_header(tmp_path / "gone.gguf")
    check_header(make_gguf(tmp_path / "good.gguf", EMPTY_GGUF))
    check_header(make_model_folder(tmp_path / "good"))
