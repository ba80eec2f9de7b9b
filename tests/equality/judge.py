"""Whether an engine's tokens and logits are those of the lone reference on the same prefix."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.requests import SamplingParams
from engine.runner.philox import uniforms
from tests.equality.session import Session

# Of a logit. Scores of these checkpoints reach 10; bfloat16 keeps eight bits of each sum on the way to them.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1}
CLEAR = 10  # a greedy token may lie this many tolerances below the top


@dataclass(frozen=True)
class Verdict:
    """What was compared: sampled positions, those that differ, and the largest difference of a logit."""

    positions: int = 0
    mismatches: int = 0
    worst: float = 0.0

    def __add__(self, other: "Verdict") -> "Verdict":
        worst = max(self.worst, other.worst)
        return Verdict(self.positions + other.positions, self.mismatches + other.mismatches, worst)


class Judge:
    """The reference in float32, without a cache, one sequence at a time.

    Args:
        reference: transformers' model.
        tolerance: how far a logit may lie from the reference's.
        whole_texts: one forward for a whole answer, of which each row sees its prefix alone, instead of one full
            forward for each prefix.
    """

    def __init__(self, reference: PreTrainedModel, *, tolerance: float, whole_texts: bool) -> None:
        self._reference = reference
        self._tolerance = tolerance
        self._whole_texts = whole_texts
        self._known: dict[tuple[int, ...], Tensor] = {}

    def check(self, session: Session) -> Verdict:
        """Every token that was said, by teacher forcing; a missing or surplus one is a mismatch too."""
        return sum((self._check_answer(session, name) for name in session.prompts), Verdict())

    def _check_answer(self, session: Session, name: str) -> Verdict:
        prompt, answer, sampling = session.prompts[name], session.answers[name], session.samplings[name]
        end = session.ends.get(name)
        expected = len(answer) if end is not None and end.reason.value == "cancelled" else sampling.max_tokens
        verdict = Verdict(mismatches=abs(len(answer) - (expected or 0)) + (end is None))
        if self._whole_texts:
            self._learn_whole(prompt, answer)
        for index, (token, row) in enumerate(zip(answer, session.logits[name], strict=True)):
            logits = self._logits((*prompt, *answer[:index]))
            difference = float((row - logits).abs().max())
            same = difference <= self._tolerance and self._is_right(token, logits, sampling, len(prompt) + index)
            verdict += Verdict(positions=1, mismatches=not same, worst=difference)
        return verdict

    def _is_right(self, token: int, logits: Tensor, sampling: SamplingParams, position: int) -> bool:
        """A greedy token is the top or as good as that; a drawn one covers its random number on the running sum."""
        if sampling.temperature == 0.0:
            return float(logits.max() - logits[token]) <= CLEAR * self._tolerance
        assert sampling.seed is not None
        number = float(uniforms([sampling.seed], [position])[0])
        probabilities = (logits.double() / sampling.temperature).softmax(0)
        upper = float(probabilities[: token + 1].sum())
        # Logits that are off by the tolerance move the running sum by at most this much.
        slack = 2 * self._tolerance / sampling.temperature
        return upper - float(probabilities[token]) - slack <= number <= upper + slack

    @torch.inference_mode()
    def _logits(self, prefix: tuple[int, ...]) -> Tensor:
        if prefix not in self._known:
            self._known[prefix] = self._reference(torch.tensor([prefix]), use_cache=False).logits[0, -1].float()
        return self._known[prefix]

    @torch.inference_mode()
    def _learn_whole(self, prompt: list[int], answer: list[int]) -> None:
        text = (*prompt, *answer)
        if text[:-1] in self._known or not answer:
            return
        rows = self._reference(torch.tensor([text[:-1]]), use_cache=False).logits[0].float()
        for length in range(len(prompt), len(text)):
            self._known[text[:length]] = rows[length - 1]
