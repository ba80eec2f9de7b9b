"""Fetches a model by name: the starter, or a repository of the Hugging Face hub. No Qt, no torch."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchError, FetchProgress, OnProgress
from engine.catalog.local import ModelFolders
from engine.catalog.starter import STARTER, fetch_starter
from engine.errors import EngineError, UnknownModelError

# Weights as safetensors and what the tokenizer and the template need; no pickles, no other formats, no pictures.
ALLOWED_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "tokenizer.model", "*.jinja", "LICENSE*")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
ADVICE = "Check the name and the network and try again, or give a GGUF file or a model folder instead."

Snapshot = Callable[..., str]
"""`huggingface_hub.snapshot_download`, or a stand-in."""


def fetch_model(
    name: str,
    folders: ModelFolders,
    on_progress: OnProgress,
    cancelled: Cancelled,
    *,
    snapshot: Snapshot | None = None,
) -> Path:
    """Fetch the starter ("starter" or its own name) or a repository ("owner/name"); returns file or folder.

    Raises:
        UnknownModelError: the name is neither.
        FetchError: it could not be fetched; the sentence says what to do.
        FetchCancelledError: `cancelled` said so.
    """
    if name.casefold() in {"starter", STARTER.name}:
        return fetch_starter(folders.cache, on_progress, cancelled)
    if not REPOSITORY.fullmatch(name):
        raise UnknownModelError(name)
    on_progress(FetchProgress("Connecting"))
    return _fetch_repository(name, folders.hf_hub, _bar_class(on_progress, cancelled), snapshot or _hub_snapshot())


def _hub_snapshot() -> Snapshot:
    from huggingface_hub import snapshot_download

    return snapshot_download


def _fetch_repository(name: str, hub: Path, bar_class: type[Any], snapshot: Snapshot) -> Path:
    try:
        return Path(snapshot(name, cache_dir=hub, allow_patterns=list(ALLOWED_FILES), tqdm_class=bar_class))
    except EngineError:
        raise
    except Exception as error:  # the hub raises its own, httpx's and the system's
        raise FetchError(name, _reason(error), ADVICE, str(error)) from error


def _reason(error: Exception) -> str:
    match type(error).__name__:
        case "RepositoryNotFoundError":
            return "the hub has no such repository, or it is private"
        case "GatedRepoError":
            return "its owner asks for an account and a consent first"
        case "LocalEntryNotFoundError" | "ConnectError" | "ConnectTimeout" | "ReadTimeout" | "OfflineModeIsEnabled":
            return "the hub could not be reached"
        case kind:
            lines = str(error).strip().splitlines()
            return (lines[0].rstrip(".") if lines else kind)[:200]


def _bar_class(on_progress: OnProgress, cancelled: Cancelled) -> type[Any]:
    """A progress bar that draws nothing, tells us the bytes, and is where a cancel strikes."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            if cancelled():
                raise FetchCancelledError
            drawn: bool | None = super().update(n)
            if self.unit == "B":
                on_progress(FetchProgress("Downloading", int(self.n), int(self.total or 0)))
            return drawn

    return Bar
