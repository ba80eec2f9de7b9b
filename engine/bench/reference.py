"""transformers on the same weights: the figure that ours stands beside."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from engine.bench.reference_config import reference_classes, reference_config
from engine.weights.source import WeightSource


class TransformersReference:
    """A dense copy of a model in transformers, with its own `generate` and padded batches."""

    name = "transformers"

    def __init__(self, weights: WeightSource, dtype: torch.dtype) -> None:
        _, model_class = reference_classes(weights.architecture)
        with tempfile.TemporaryDirectory(prefix="kvscope-bench-") as folder:
            _save_dense(weights, dtype, Path(folder))
            self._model = model_class.from_pretrained(folder, dtype=dtype)
        self._model.train(mode=False)
        self._model.generation_config.eos_token_id = None

    def generate(self, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
        """Greedy continuation of prompts of equal length."""
        with torch.inference_mode():
            ids = self._model.generate(
                torch.tensor(prompts), max_new_tokens=max(lengths), do_sample=False, pad_token_id=0
            )
        new_tokens: list[list[int]] = ids[:, len(prompts[0]) :].tolist()
        return new_tokens


def _save_dense(weights: WeightSource, dtype: torch.dtype, folder: Path) -> None:
    _, model_class = reference_classes(weights.architecture)
    model: Any = model_class(reference_config(weights.architecture))
    model = model.to(dtype)
    names = [name for name in model.state_dict() if not (name == "lm_head.weight" and _is_tied(weights))]
    model.load_state_dict({name: weights.tensor(name, dtype) for name in names}, strict=False)
    model.tie_weights()
    model.save_pretrained(folder)


def _is_tied(weights: WeightSource) -> bool:
    return weights.architecture.tie_word_embeddings
