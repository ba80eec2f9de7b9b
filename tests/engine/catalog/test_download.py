"""Fetching by name, with a stand-in for the hub."""

from pathlib import Path
from typing import Any

import pytest

from engine.catalog.download import fetch_model
from engine.catalog.fetch import FetchCancelledError, FetchError, FetchProgress
from engine.catalog.local import ModelFolders
from engine.errors import UnknownModelError


@pytest.fixture
def folders(tmp_path: Path) -> ModelFolders:
    return ModelFolders(cache=tmp_path / "cache", models=tmp_path / "models", hf_hub=tmp_path / "hub")


class FakeHub:
    """Two files of 60 and 40 bytes, told in one bar."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: dict[str, Any] = {}

    def __call__(self, name: str, **options: Any) -> str:
        self.asked = {"name": name, **options}
        if self.error is not None:
            raise self.error
        with options["tqdm_class"](total=100, unit="B", disable=None) as bar:
            bar.update(60)
            bar.update(40)
        with options["tqdm_class"](total=2, desc="Fetching 2 files") as files:
            files.update(2)
        return str(options["cache_dir"] / "snapshot")


def test_a_repository_is_fetched_into_the_hub_cache(folders: ModelFolders) -> None:
    hub = FakeHub()
    seen: list[FetchProgress] = []
    path = fetch_model("owner/some-model", folders, seen.append, lambda: False, snapshot=hub)
    assert path == folders.hf_hub / "snapshot"
    assert hub.asked["name"] == "owner/some-model"
    assert "*.bin" not in hub.asked["allow_patterns"]
    assert seen[1:] == [FetchProgress("Downloading", 60, 100), FetchProgress("Downloading", 100, 100)]


def test_a_cancel_strikes_at_the_next_bytes(folders: ModelFolders) -> None:
    with pytest.raises(FetchCancelledError):
        fetch_model("owner/some-model", folders, lambda _progress: None, lambda: True, snapshot=FakeHub())


class RepositoryNotFoundError(Exception):
    """Named like the hub's own."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RepositoryNotFoundError("404"), "no such repository"),
        (OSError("disk full.\nmore"), "disk full. Check"),
        (ValueError(""), "ValueError"),
    ],
)
def test_a_failure_is_one_sentence(folders: ModelFolders, error: Exception, words: str) -> None:
    with pytest.raises(FetchError) as caught:
        fetch_model("owner/some-model", folders, lambda _progress: None, lambda: False, snapshot=FakeHub(error))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_hub_itself_being_offline_is_a_sentence(folders: ModelFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FetchError, match="the hub could not be reached"):
        fetch_model("owner/some-model", folders, lambda _progress: None, lambda: False)


@pytest.mark.parametrize("name", ["", "nothing", "a/b/c", "../etc/passwd"])
def test_a_name_that_is_neither_is_unknown(folders: ModelFolders, name: str) -> None:
    with pytest.raises(UnknownModelError):
        fetch_model(name, folders, lambda _progress: None, lambda: False)
