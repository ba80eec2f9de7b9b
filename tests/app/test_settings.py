"""The settings file: round trip, and every way it can be wrong."""

import dataclasses
import json
from pathlib import Path

import pytest

from app.settings import LoadedSettings, Settings, load_settings, save_settings

CHOSEN = Settings(
    theme="dark", last_model="/models/a.gguf", dtype="float32", device="cuda:1", threads=2, window_geometry="AdnQ",
    pane_sizes_px=(200, 600, 500), list_shown=False, dashboard_shown=False, fetch_starter=False, max_num_seqs=8,
    max_num_batched_tokens=512, policy="prefill-first", max_chunk_tokens=128,
    max_model_len=4096, kv_cache_mib=1024, temperature=0.0, top_p=1.0, max_tokens=200,
    system_prompt="Be brief.\nDo not guess.",
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.json"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_what_is_saved_is_loaded(path: Path) -> None:
    defaults = dataclasses.asdict(Settings())
    assert all(value != defaults[name] for name, value in dataclasses.asdict(CHOSEN).items()), "a field is not tried"
    save_settings(path, CHOSEN)
    assert load_settings(path) == LoadedSettings(CHOSEN)
    assert [file.name for file in path.parent.iterdir()] == ["settings.json"]


def test_no_file_means_defaults(path: Path) -> None:
    assert load_settings(path) == LoadedSettings(Settings())


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"dark"', "null"])
def test_a_broken_file_means_defaults_a_note_and_a_copy(path: Path, text: str) -> None:
    write(path, text)
    loaded = load_settings(path)
    assert loaded.settings == Settings()
    assert "broken" in loaded.note
    assert "settings.json.bak" in loaded.note
    assert path.with_name("settings.json.bak").read_text() == text


def test_bytes_that_are_no_text_mean_defaults_and_a_note(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe\x00")
    assert load_settings(path).settings == Settings()
    assert "could not be read" in load_settings(path).note


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theme", "pink"),
        ("theme", 3),
        ("dtype", "int4"),
        ("threads", 0),
        ("threads", "two"),
        ("threads", True),
        ("pane_sizes_px", [1, "x"]),
        ("pane_sizes_px", [-1]),
        ("pane_sizes_px", 7),
        ("list_shown", "yes"),
        ("last_model", None),
        ("max_num_seqs", 0),
        ("max_num_seqs", None),
        ("max_num_seqs", 16.5),
        ("max_num_seqs", 300),  # more than the budget
        ("max_num_batched_tokens", 15),  # fewer than the slots
        ("max_model_len", 0),
        ("policy", "fair"),
        ("policy", None),
        ("max_chunk_tokens", 0),
        ("kv_cache_mib", "1 GiB"),
        ("temperature", 2.5),
        ("temperature", None),
        ("temperature", True),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("system_prompt", 3),
        ("from_the_future", 1),
    ],
)
def test_one_wrong_value_leaves_the_others(path: Path, name: str, value: object) -> None:
    write(path, json.dumps({"device": "cpu", name: value}))
    loaded = load_settings(path)
    assert loaded.settings == Settings(device="cpu")
    assert name in loaded.note
    assert path.with_name("settings.json.bak").exists()


def test_a_failed_save_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_settings(path, CHOSEN)

    def fail(_self: Path, _target: Path) -> Path:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no"):
        save_settings(path, Settings())
    assert load_settings(path).settings == CHOSEN
    assert [file.name for file in path.parent.iterdir()] == ["settings.json"]
