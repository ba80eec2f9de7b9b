"""The reference of the benchmark is the same model: its answers are the greedy ones of the original."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bench.reference import TransformersReference
from engine.weights.source import open_weights
from tests.fakes.reference import greedy_answer
from tests.fakes.tiny_checkpoint import FAMILIES, HEAD_DIM, ROPES, longrope, tiny_checkpoint
from tests.fakes.tiny_llama import save_folder, save_gguf, tiny_llama

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


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_rope_is_the_original(family: str, rope: str, tmp_path: Path) -> None:
    """What we read says the same in transformers' words again, windows included."""
    parameters = longrope(32 if family == "qwen3" else HEAD_DIM) if rope == "longrope" else dict(ROPES[rope])
    windows = {"sliding_window": 8} | ({} if family == "mistral" else {"use_sliding_window": True})
    changes = {} if family == "llama" else windows | {"max_window_layers": 1}
    model = tiny_checkpoint(family, rope_parameters=parameters, **changes)
    with closing(open_weights(save_folder(model, tmp_path / "tiny"))) as weights:
        reference = TransformersReference(weights, torch.float32)
    tokens = torch.arange(90).unsqueeze(0)
    with torch.inference_mode():
        torch.testing.assert_close(reference._model(tokens).logits, model(tokens).logits, rtol=0, atol=1e-5)


def test_factors_of_a_file_are_the_originals(tmp_path: Path) -> None:
    model = tiny_checkpoint("llama", rope_parameters=dict(ROPES["llama3"]))
    module = model.model.rotary_emb
    plain, _ = module.compute_default_rope_parameters(model.config)
    factors = {"rope_freqs.weight": (plain / module.inv_freq).numpy()}
    with closing(open_weights(save_gguf(model, tmp_path / "tiny.gguf", tensors=factors))) as weights:
        reference = TransformersReference(weights, torch.float32)
    tokens = torch.arange(90).unsqueeze(0)
    with torch.inference_mode():
        torch.testing.assert_close(reference._model(tokens).logits, model(tokens).logits, rtol=0, atol=1e-5)


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


def test_continuous_batching_gives_the_same_answers(tmp_path: Path) -> None:
    model = tiny_llama()
    with closing(open_weights(save_folder(model, tmp_path / "tiny"))) as weights:
        reference = TransformersReference(weights, torch.float32)
    lengths = [6, 2, 4]
    with reference.continuous(2) as continuous:
        found = continuous.generate(PROMPTS, lengths)
    expected = [greedy_answer(model, prompt, length)[0] for prompt, length in zip(PROMPTS, lengths, strict=True)]
    assert found == expected
