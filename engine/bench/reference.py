"""transformers on the same weights: the figure that ours stands beside."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from engine.bench.reference_config import reference_classes, reference_config
from engine.weights.source import WeightSource

_POLL_S = 1.0


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
        """Greedy continuation of prompts of equal length, as one padded batch."""
        with torch.inference_mode():
            ids = self._model.generate(
                torch.tensor(prompts), max_new_tokens=max(lengths), do_sample=False, pad_token_id=0
            )
        new_tokens: list[list[int]] = ids[:, len(prompts[0]) :].tolist()
        return new_tokens

    def continuous(self, num_slots: int) -> "ContinuousReference":
        """The same model with transformers' own continuous batching."""
        return ContinuousReference(self._model, num_slots)


class ContinuousReference:
    """transformers' continuous batching on `num_slots` slots; its manager runs between enter and exit."""

    name = "its continuous batching"

    def __init__(self, model: Any, num_slots: int) -> None:
        from transformers.generation import configuration_utils

        settings: Any = configuration_utils
        self._manager = model.continuous_batching_context_manager(
            generation_config=settings.GenerationConfig(eos_token_id=-1, pad_token_id=0, do_sample=False),
            continuous_batching_config=settings.ContinuousBatchingConfig(
                page_size=32, num_blocks=16 * num_slots, max_batch_tokens=1024, max_requests_per_batch=num_slots
            ),
        )
        self._running: Any = None

    def __enter__(self) -> "ContinuousReference":
        self._running = self._manager.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._manager.__exit__(*error)

    def generate(self, prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
        """Greedy continuation of each prompt by its own length."""
        ids = [
            self._running.add_request(input_ids=prompt, max_new_tokens=length)
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        answers: dict[str, list[int]] = {}
        while len(answers) < len(ids):
            result = self._running.get_result(timeout=_POLL_S)
            if result is not None and result.is_finished():
                answers[result.request_id] = list(result.generated_tokens)
            elif not self._running.is_running():
                raise RuntimeError("transformers' continuous batching ended by itself")
        return [answers[request_id] for request_id in ids]


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
