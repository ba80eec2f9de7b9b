"""Weights from a folder of safetensors files, one tensor at a time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.architecture import ModelArchitecture
from engine.weights.folder_layout import EMBEDDING, HEAD, check_folder, missing_tensor, open_file


class SafetensorsWeights:
    """A WeightSource over config.json and *.safetensors.

    Raises:
        ModelError: before any weight is read, when the folder cannot be run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._layout = check_folder(folder)
        paths = sorted(set(self._layout.file_of.values()))
        self._files: dict[Path, Any] = {path: open_file(path, framework="pt") for path in paths}
        self._architecture = replace(self._layout.architecture, tie_word_embeddings=self._is_tied())

    @property
    def architecture(self) -> ModelArchitecture:
        """The model's shape."""
        return self._architecture

    @property
    def quantization(self) -> str:
        """The dtype of the weights in the file."""
        return self._layout.dtype_name

    def tensor_names(self) -> Iterator[str]:
        """Every tensor in the files but a head that is tied."""
        tied = self._architecture.tie_word_embeddings
        names = {*self._layout.file_of, *self._layout.aliases}
        return (name for name in sorted(names) if not (tied and name == HEAD))

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """One tensor; see WeightSource."""
        if name == HEAD and self._architecture.tie_word_embeddings:
            raise missing_tensor(self._folder, name)
        # The library's tensors are views of the mapped file: copy even when nothing changes.
        return self._view(self._layout.aliases.get(name, name)).to(dtype, copy=True).contiguous()

    def close(self) -> None:
        """Forget the files; the library unmaps them with the last reference."""
        self._files = {}

    def _view(self, name: str) -> torch.Tensor:
        file = self._files.get(self._layout.file_of.get(name, Path()))
        if file is None:
            raise missing_tensor(self._folder, name)
        tensor: torch.Tensor = file.get_tensor(name)
        return tensor

    def _is_tied(self) -> bool:
        """What transformers (5.24, `PreTrainedModel.tie_weights`) makes of the flag and the file together.

        A tied flag beside a head of its own holds only when both tables are equal.
        """
        if not self._layout.architecture.tie_word_embeddings:
            return False
        return not self._layout.has_both_tables or torch.equal(self._view(EMBEDDING), self._view(HEAD))
