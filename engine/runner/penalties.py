"""What a request's own settings and its tokens so far add to the scores. Knows no draw.

Order: logit bias, repetition penalty (as transformers defines it: over prompt and answer), then frequency and presence
penalties (as OpenAI and vLLM define them: over the answer).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.requests import SamplingParams


class TokenHistory:
    """The distinct tokens of a prompt and its answer, and how often each came in the answer. Grows with the answer."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._places: dict[int, int] = {}
        self._num_tokens = len(prompt)
        self._ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float64)
        for token_id in prompt:
            self._place(token_id)

    @property
    def ids(self) -> Tensor:
        """Distinct token ids (n,), int64, on the CPU."""
        return torch.from_numpy(self._ids[: len(self._places)])

    @property
    def counts(self) -> Tensor:
        """How often each of them came in the answer (n,), float64."""
        return torch.from_numpy(self._counts[: len(self._places)])

    def catch_up(self, token_ids: Sequence[int]) -> None:
        """Take what is new in prompt and answer since the last call; both together only ever grow."""
        for token_id in token_ids[self._num_tokens :]:
            place = self._place(token_id)
            self._counts[place] += 1
        self._num_tokens = len(token_ids)

    def _place(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[place] = token_id
        return place


def adjusts(sampling: SamplingParams) -> bool:
    """Whether `adjust` would change anything."""
    return bool(sampling.logit_bias) or has_penalties(sampling)


def has_penalties(sampling: SamplingParams) -> bool:
    """Whether the tokens so far matter."""
    return (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1.0, 0.0, 0.0)


def adjust(scores: Tensor, sampling: SamplingParams, history: TokenHistory | None) -> None:
    """Change one row of scores (vocab,) in place."""
    if sampling.logit_bias:
        biased, values = zip(*sampling.logit_bias, strict=True)
        scores.index_add_(0, torch.tensor(biased, device=scores.device), scores.new_tensor(values))
    if history is not None:
        ids = history.ids.to(scores.device)
        counts = history.counts.to(scores)
        penalised = _penalised(scores.index_select(0, ids), counts, sampling)
        scores.index_copy_(0, ids, penalised)


def _penalised(scores: Tensor, counts: Tensor, sampling: SamplingParams) -> Tensor:
    factor = sampling.repetition_penalty
    if factor != 1.0:
        scores = torch.where(scores < 0, scores * factor, scores / factor)
    scores = scores - sampling.frequency_penalty * counts
    return scores - sampling.presence_penalty * (counts > 0)
