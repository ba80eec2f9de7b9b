"""One door to the weights of a model, whatever file they lie in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

from engine.architecture import ModelArchitecture
from engine.errors import ModelError


class WeightSource(Protocol):
    """Tensors by their Hugging Face names ("model.layers.0.self_attn.q_proj.weight").

    With tied heads `architecture.tie_word_embeddings` is set and there is no "lm_head.weight".
    Not for several threads at once.
    """

    @property
    def architecture(self) -> ModelArchitecture:
        """The model's shape."""

    @property
    def quantization(self) -> str:
        """How the weights are stored, for people: "Q4_1", "bfloat16"."""

    def tensor_names(self) -> Iterator[str]:
        """Every tensor that `tensor` can give."""

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """One tensor in Hugging Face's layout, contiguous, in memory of its own.

        Raises:
            ModelError: there is no such tensor, or it cannot be read.
        """

    def close(self) -> None:
        """Close the files. May be called twice."""


def open_weights(path: Path) -> WeightSource:
    """Open a GGUF file, or a folder with config.json and safetensors files. Reads headers only.

    Raises:
        ModelError: nothing there, a foreign or damaged file, an unsupported architecture or quantisation, or a model
            that lacks a tensor.
    """
    # The readers import this module's neighbours; which of them is needed is known only here.
    from engine.weights.gguf import GGUFWeights
    from engine.weights.safetensors import SafetensorsWeights

    if not path.exists():
        raise ModelError(f"There is no file or folder {path}. Check the path, or choose another model.")
    return SafetensorsWeights(path) if path.is_dir() else GGUFWeights(path)
