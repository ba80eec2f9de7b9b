"""The starter against transformers with the same weights, dequantised, in float32 and in bfloat16."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from engine.bench.reference_config import reference_config
from engine.engine import Engine
from engine.requests import Message, Request, SamplingParams
from engine.weights.source import open_weights
from tests.fakes.reference import CLEAR, FLOAT32_TOLERANCE, answer_logits, assert_greedy, shortfalls
from tests.fakes.tiny_model import tiny_engine

pytestmark = pytest.mark.starter

NEW_TOKENS = 16
CONVERSATIONS = [
    (Message("user", "What is the capital of France?"),),
    (Message("system", "Answer in one short sentence."), Message("user", "Why is the sky blue?")),
    (
        Message("user", "Name a colour."),
        Message("assistant", "Green."),
        Message("user", "Name another one, and say what it stands for in a few words."),
    ),
    (Message("user", "Translate into Spanish: the library opens at nine and closes at six on every working day."),),
]


@pytest.fixture(scope="module")
def reference(starter_gguf: Path) -> LlamaForCausalLM:
    """The weights as they come out of the file, in float32."""
    weights = open_weights(starter_gguf)
    model = LlamaForCausalLM(reference_config(weights.architecture))
    tensors = {name: weights.tensor(name, torch.float32) for name, _ in model.named_parameters()}
    weights.close()
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model.eval()


@dataclass(frozen=True)
class Spoken:
    """One answer, and the scores that each of its tokens was taken from: (answer, vocab) in float32."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    scores: Tensor


class Speaker:
    """Answers all conversations in shared steps: prompts in chunks, two of them while the others are answered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._scores: list[Tensor] = []
        decoder = engine._model.runner._decoder
        compute = decoder.logits
        decoder.logits = lambda hidden: self._keep(compute(hidden))  # type: ignore[method-assign]
        self._rows: dict[str, list[tuple[int, Tensor]]] = {str(index): [] for index in range(len(CONVERSATIONS))}

    def _keep(self, scores: Tensor) -> Tensor:
        self._scores = list(scores.float())
        return scores

    def speak(self) -> list[Spoken]:
        prompts = self._submit(0, 2)
        for _ in range(6):
            self._step()
        prompts += self._submit(2, 4)
        while self._engine.has_work:
            self._step()
        return [
            Spoken(prompt, tuple(token for token, _ in rows), torch.stack([scores for _, scores in rows]))
            for prompt, rows in zip(prompts, self._rows.values(), strict=True)
        ]

    def _submit(self, first: int, stop: int) -> list[tuple[int, ...]]:
        sampling = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
        for index in range(first, stop):
            self._engine.submit(Request(request_id=str(index), messages=CONVERSATIONS[index], sampling=sampling))
        answers = self._engine._answers
        return [tuple(answers[str(index)].sequence.token_ids) for index in range(first, stop)]

    def _step(self) -> None:
        deltas = self._engine.step().deltas
        self._engine.check_integrity()
        for delta, scores in zip(deltas, self._scores, strict=True) if deltas else ():
            self._rows[delta.request_id].append((*delta.token_ids, scores))


def load(starter_gguf: Path, dtype: str) -> list[Spoken]:
    engine = tiny_engine(starter_gguf, dtype=dtype, max_model_len=512, max_num_batched_tokens=32)
    spoken = Speaker(engine).speak()
    engine.close()
    return spoken


@pytest.fixture(scope="module")
def in_float32(starter_gguf: Path) -> list[Spoken]:
    return load(starter_gguf, "float32")


@pytest.fixture(scope="module")
def in_bfloat16(starter_gguf: Path) -> list[Spoken]:
    return load(starter_gguf, "bfloat16")


def test_float32_is_the_reference_token_by_token(in_float32: list[Spoken], reference: LlamaForCausalLM) -> None:
    """Each token is the reference's most likely one; where the best two are apart, there is no other choice."""
    num_clear = 0
    for spoken in in_float32:
        assert len(spoken.answer) == NEW_TOKENS
        logits = answer_logits(reference, spoken.prompt, spoken.answer)
        best = logits.topk(2).values
        is_clear = best[:, 0] - best[:, 1] > CLEAR * FLOAT32_TOLERANCE
        num_clear += int(is_clear.sum())
        assert logits.argmax(dim=1)[is_clear].tolist() == torch.tensor(spoken.answer)[is_clear].tolist()
        assert_greedy(reference, spoken.prompt, spoken.answer)
        torch.testing.assert_close(spoken.scores, logits, rtol=1e-5, atol=1e-3)
    assert num_clear >= 0.9 * NEW_TOKENS * len(CONVERSATIONS)


def test_bfloat16_is_as_near_as_transformers_is(in_bfloat16: list[Spoken], reference: LlamaForCausalLM) -> None:
    """Teacher forcing against float32.

    A fixed number would be a guess: what bfloat16 does to this model's scores (up to 40, where its ticks are 0.25) is
    measured on transformers, which computes the same prefixes in bfloat16 too. If that moves the scores of the likely
    tokens by at most e, then the best of the moved ones lies at most 2 e below the best; our token must lie within
    that. All of our scores together must be about as near to float32 as transformers': the roundings differ, and over
    sixteen such conversations the ratio was 0.7 to 1.4 for one and 1.08 for all.
    """
    rounded = LlamaForCausalLM(reference.config).to(torch.bfloat16).eval()
    rounded.load_state_dict(reference.state_dict())
    our_errors, their_errors = [], []
    for spoken in in_bfloat16:
        assert len(spoken.answer) == NEW_TOKENS
        exact = answer_logits(reference, spoken.prompt, spoken.answer)
        theirs = answer_logits(rounded, spoken.prompt, spoken.answer)
        likely = exact.topk(10).indices
        moved = float((theirs - exact).gather(1, likely).abs().max())
        assert 0 < moved < 1, "a tolerance wider than this would say nothing"
        assert float(shortfalls(exact, spoken.answer).max()) <= 2 * moved
        our_errors.append(spoken.scores - exact)
        their_errors.append(theirs - exact)
    assert root_mean_square(our_errors) <= 1.5 * root_mean_square(their_errors)


def root_mean_square(errors: list[Tensor]) -> float:
    return float(torch.cat(errors).square().mean().sqrt())
