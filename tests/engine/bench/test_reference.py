"""The reference of the benchmark is the same model: its answers are the greedy ones of the original."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bench.reference import TransformersReference
from engine.weights.source import open_weights
from tests.fakes.reference import greedy_answer
from tests.fakes.tiny_llama import save_folder, tiny_llama

PROMPTS = [[5, 6, 7, 8], [50, 40, 30, 20], [9, 9, 9, 9]]


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True, "head_dim": 24}],
    ids=["plain", "tied", "biases"],
)
def test_answers_are_the_originals(changes: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_llama(**changes)
    with closing(open_weights(save_folder(model, tmp_path / "tiny"))) as weights:
        reference = TransformersReference(weights, torch.float32)
    assert reference.generate(PROMPTS, [6, 6, 6]) == [greedy_answer(model, prompt, 6)[0] for prompt in PROMPTS]


def test_an_end_token_does_not_end_a_measurement(tmp_path: Path) -> None:
    model = tiny_llama()
    (first, second, *_), _ = greedy_answer(model, PROMPTS[0], 2)
    model = tiny_llama(eos_token_id=[first, second])
    with closing(open_weights(save_folder(model, tmp_path / "tiny"))) as weights:
        reference = TransformersReference(weights, torch.float32)
    assert [len(answer) for answer in reference.generate(PROMPTS, [9, 9, 9])] == [9, 9, 9]


def test_the_dense_copy_has_the_dtype_asked_for(tmp_path: Path) -> None:
    with closing(open_weights(save_folder(tiny_llama(), tmp_path / "tiny"))) as weights:
        reference = TransformersReference(weights, torch.bfloat16)
    assert reference._model.dtype is torch.bfloat16
    assert not reference._model.training
