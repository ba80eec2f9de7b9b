"""Which models are on this machine: the starter, the Hugging Face cache, and a folder for GGUF files.

It reads names, sizes and headers, never tensors, and lists what these say can be loaded.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from engine.catalog.starter import STARTER, starter_path
from engine.errors import ModelError, UnknownModelError
from engine.gguf_file import skim_header
from engine.model_names import display_name
from engine.text.folder_tokenizer import tokenizer_path
from engine.text.gguf_tokenizer import check_fields
from engine.weights.folder_layout import check_folder
from engine.weights.gguf_layout import check_layout


class ModelSource(Enum):
    """Where a model was found."""

    STARTER = "starter"
    HF_CACHE = "Hugging Face cache"
    MODELS_FOLDER = "models folder"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that can be loaded. `path` is a GGUF file or a folder with safetensors."""

    name: str
    path: Path
    source: ModelSource
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Where to look.

    Attributes:
        cache: the program's cache, with the starter.
        models: the user's folder for GGUF files and model folders.
        hf_hub: the Hugging Face cache ("hub").
    """

    cache: Path
    models: Path
    hf_hub: Path


def hf_hub_folder() -> Path:
    """The Hugging Face cache as its own library finds it, without importing that library."""
    if named := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser() / "hub"


def list_models(folders: ModelFolders) -> tuple[LocalModel, ...]:
    """Every model that looks loadable: the starter first, then by name."""
    starter = starter_path(folders.cache)
    found = [*_hf_models(folders.hf_hub), *_own_models(folders.models)]
    found.sort(key=lambda model: model.name.casefold())
    if starter is not None:
        found.insert(0, LocalModel(STARTER.name, starter, ModelSource.STARTER, STARTER.size_bytes))
    return tuple(found)


def resolve(name_or_path: str, folders: ModelFolders) -> Path:
    """The file or folder that is meant: a path, or a name of `list_models` in any case.

    Raises:
        UnknownModelError: neither; the sentence names the ways to give a model.
    """
    path = Path(name_or_path).expanduser()
    if name_or_path and path.exists():
        return path.absolute()
    wanted = name_or_path.casefold()
    if wanted == "starter":
        wanted = STARTER.name
    for model in list_models(folders):
        if wanted in {model.name.casefold(), model.name.rsplit("/", 1)[-1].casefold()}:
            return model.path
    if wanted == STARTER.name:
        raise StarterMissingError
    raise UnknownModelError(name_or_path)


def check_header(path: Path) -> None:
    """Refuse what cannot be loaded, in some hundredths of a second and without torch.

    Raises:
        ModelError: a foreign or damaged file, or a model or tokenizer that cannot be computed.
    """
    if path.is_dir():
        check_folder(path)
        tokenizer_path(path)
    else:
        header = skim_header(path)
        check_layout(header)
        check_fields(header)


class StarterMissingError(ModelError):
    """The starter model was asked for by name and is not here."""

    def __init__(self) -> None:
        super().__init__(
            f"The starter model is not on this machine yet. Fetch it with `kvscope models get {STARTER.name}`."
        )


def _hf_models(hub: Path) -> Iterator[LocalModel]:
    for repository in sorted(hub.glob("models--*")):
        snapshot = _snapshot(repository)
        if snapshot is not None and _is_loadable(snapshot):
            yield LocalModel(display_name(snapshot), snapshot, ModelSource.HF_CACHE, _weights_bytes(snapshot))


def _snapshot(repository: Path) -> Path | None:
    """The revision that "main" names, else the newest one."""
    snapshots = repository / "snapshots"
    try:
        main = snapshots / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        main = None
    if main is not None and main.is_dir():
        return main
    found = [path for path in snapshots.glob("*") if path.is_dir()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _own_models(folder: Path) -> Iterator[LocalModel]:
    for path in sorted(folder.glob("*")):
        if path.is_file() and path.suffix == ".gguf" and _is_loadable(path):
            yield LocalModel(path.stem, path, ModelSource.MODELS_FOLDER, path.stat().st_size)
        elif path.is_dir() and _is_loadable(path):
            yield LocalModel(path.name, path, ModelSource.MODELS_FOLDER, _weights_bytes(path))


def _is_loadable(path: Path) -> bool:
    try:
        check_header(path)
    except ModelError:
        return False
    return True


def _weights_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
