"""Weights from a folder of safetensors files, one tensor at a time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.weights.config_json import architecture_from_folder, read_json
from engine.weights.expected import expected_shapes, unexpected_shape

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

_DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}


class SafetensorsWeights:
    """A WeightSource over config.json and *.safetensors.

    Raises:
        ModelError: before any weight is read, when the folder cannot be run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        architecture = architecture_from_folder(folder)
        self._files = _open_files(folder)
        self._file_of = {name: file for file in self._files for name in file.keys()}  # noqa: SIM118 - no mapping
        self._aliases: dict[str, str] = {}
        self._architecture = replace(architecture, tie_word_embeddings=self._is_tied(architecture))
        self._quantization = self._check()

    @property
    def architecture(self) -> ModelArchitecture:
        """The model's shape."""
        return self._architecture

    @property
    def quantization(self) -> str:
        """The dtype of the weights in the file."""
        return self._quantization

    def tensor_names(self) -> Iterator[str]:
        """Every tensor in the files but a head that is tied."""
        tied = self._architecture.tie_word_embeddings
        names = {*self._file_of, *self._aliases}
        return (name for name in sorted(names) if not (tied and name == HEAD))

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """One tensor; see WeightSource."""
        if name == HEAD and self._architecture.tie_word_embeddings:
            raise self._missing(name)
        # The library's tensors are views of the mapped file: copy even when nothing changes.
        return self._view(self._aliases.get(name, name)).to(dtype, copy=True).contiguous()

    def close(self) -> None:
        """Forget the files; the library unmaps them with the last reference."""
        self._file_of = {}
        self._files = []

    def _view(self, name: str) -> torch.Tensor:
        file = self._file_of.get(name)
        if file is None:
            raise self._missing(name)
        tensor: torch.Tensor = file.get_tensor(name)
        return tensor

    def _is_tied(self, architecture: ModelArchitecture) -> bool:
        """What transformers (5.24, `PreTrainedModel.tie_weights`) makes of the flag and the file together.

        A tied flag beside a head of its own holds only when both are equal. A tied model whose file has only the head
        takes the head as its embedding. Where an untied head is missing, transformers would draw a random one.
        """
        if not architecture.tie_word_embeddings:
            if HEAD not in self._file_of:
                raise self._missing_head()
            return False
        if HEAD not in self._file_of:
            return True
        if EMBEDDING not in self._file_of:
            self._aliases[EMBEDDING] = HEAD
            return True
        return torch.equal(self._view(EMBEDDING), self._view(HEAD))

    def _check(self) -> str:
        """All that the model needs is there, in the right shape and a known dtype; returns the embedding's."""
        dtypes = []
        for name, shape in expected_shapes(self._architecture):
            stored_name = self._aliases.get(name, name)
            if stored_name not in self._file_of:
                raise self._missing(name)
            stored = self._file_of[stored_name].get_slice(stored_name)
            if tuple(stored.get_shape()) != shape:
                raise unexpected_shape(self._folder, name, tuple(stored.get_shape()), shape)
            dtypes.append(self._dtype_name(stored.get_dtype()))
        return dtypes[0]

    def _dtype_name(self, stored: str) -> str:
        if stored not in _DTYPE_NAMES:
            raise ModelError(
                f"The weights in {self._folder} are stored as {stored}, which cannot be read. "
                "Choose the model in bfloat16, float16 or float32, or as GGUF."
            )
        return _DTYPE_NAMES[stored]

    def _missing_head(self) -> ModelError:
        return ModelError(
            f"The config.json of {self._folder} promises an output head of its own, and the files have no {HEAD}. "
            'Download the model again, or write "tie_word_embeddings": true if it shares its embedding.'
        )

    def _missing(self, name: str) -> ModelError:
        return ModelError(
            f"The files in {self._folder} have no tensor {name}. Download the model again, or choose another."
        )


def _open_files(folder: Path) -> list[Any]:
    files = []
    for path in _file_paths(folder):
        if not path.is_file():
            raise ModelError(f"The folder {folder} lacks the file {path.name} that its index names. Download it again.")
        try:
            files.append(safe_open(path, framework="pt", device="cpu"))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} is damaged or incomplete ({error}). Download it again.") from error
    return files


def _file_paths(folder: Path) -> list[Path]:
    """One whole file, the shards that the index names, or whatever *.safetensors there is."""
    index = folder / INDEX_NAME
    if (folder / SINGLE_NAME).is_file():
        return [folder / SINGLE_NAME]
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelError(f"{index} names no files. Download the model again.")
        return [folder / name for name in sorted(set(names.values()))]
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(
            f"The folder {folder} has no *.safetensors files. "
            "Choose a folder with config.json and *.safetensors, or a GGUF file."
        )
    return paths
