"""From logits to tokens. Rows know nothing of each other: a draw depends on its row, its history, seed and position.

Order: logit bias, repetition, frequency and presence penalties (`penalties`), then temperature, top-k, top-p and min-p
(`batch_draw`). On a CPU each row is drawn by itself while it lies in the cache (`row_draw`); elsewhere all rows go
through tensors together. A row that fails, or whose scores are not finite, fails alone.
"""

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine.errors import reason
from engine.events import TokenLogprobs
from engine.runner.batch_draw import Filters, draw_rows
from engine.runner.logprobs import logprobs_of
from engine.runner.penalties import TokenHistory, adjust, adjusts, has_penalties
from engine.runner.philox import NumberStream, uniforms_tensor
from engine.runner.row_draw import ScoreRow
from engine.runner.send import send
from engine.scheduling.sequence import Sequence

log = logging.getLogger(__name__)

NOT_FINITE = (
    "The model's scores overflowed (NaN or infinite), so the answer ends here. "
    "Ask in other words, or load the model with --dtype float32."
)
_ROWS_AT_ONCE = 32  # on a device: in float64 a row of a large vocabulary takes a MB in each of some ten tensors


@dataclass(frozen=True, slots=True)
class Sampled:
    """By request id: the new token, log probabilities where asked for, and a sentence for each row that failed."""

    tokens: dict[str, int] = field(default_factory=dict)
    logprobs: dict[str, TokenLogprobs] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Sampler:
    """Chooses the next token of each sequence. What it remembers of a sequence goes when the sequence goes."""

    def __init__(self) -> None:
        self._histories: WeakKeyDictionary[Sequence, TokenHistory] = WeakKeyDictionary()
        self._numbers: WeakKeyDictionary[Sequence, NumberStream] = WeakKeyDictionary()

    def sample(self, logits: Tensor, sequences: list[Sequence]) -> Sampled:
        """The next token of each sequence from its row of logits (rows, vocab); the logits stay as they are."""
        sampled = Sampled()
        choose = self._choose_one_by_one if logits.device.type == "cpu" else self._choose_together
        tokens = choose(logits, sequences, sampled.failed)
        for row, sequence in zip(logits, sequences, strict=True):
            count = sequence.sampling.logprobs
            if count is not None and sequence.request_id in tokens:
                with _alone(sequence, sampled.failed):
                    sampled.logprobs[sequence.request_id] = logprobs_of(row, tokens[sequence.request_id], count)
        sampled.tokens.update((name, token_id) for name, token_id in tokens.items() if name not in sampled.failed)
        return sampled

    def _choose_one_by_one(self, logits: Tensor, sequences: list[Sequence], failed: dict[str, str]) -> dict[str, int]:
        tokens: dict[str, int] = {}
        for row, sequence in zip(logits, sequences, strict=True):
            with _alone(sequence, failed):
                token_id = self._choose(row, sequence)
                if token_id is None:
                    failed[sequence.request_id] = NOT_FINITE
                else:
                    tokens[sequence.request_id] = token_id
        return tokens

    def _choose(self, row: Tensor, sequence: Sequence) -> int | None:
        """The next token of one sequence; None when its scores are not finite."""
        sampling = sequence.sampling
        scores = row.to(_precision(row), copy=adjusts(sampling))
        self._adjust(scores, sequence)
        candidates = ScoreRow(scores)
        if not math.isfinite(candidates.top):
            return None
        if sampling.temperature == 0:
            return candidates.best()
        numbers = self._numbers.get(sequence)
        if numbers is None:
            numbers = self._numbers[sequence] = NumberStream(sampling.seed or 0)
        return candidates.draw(sampling, numbers.at(sequence.num_tokens))

    def _choose_together(self, logits: Tensor, sequences: list[Sequence], failed: dict[str, str]) -> dict[str, int]:
        chosen = []
        for first in range(0, len(sequences), _ROWS_AT_ONCE):
            part = sequences[first : first + _ROWS_AT_ONCE]
            scores = logits[first : first + _ROWS_AT_ONCE]
            if any(adjusts(sequence.sampling) for sequence in part):
                scores = scores.to(_precision(logits), copy=True)
                for row, sequence in zip(scores, part, strict=True):
                    with _alone(sequence, failed):
                        self._adjust(row, sequence)
            chosen.append(_choose_rows(scores, part))
        tokens: dict[str, int] = {}
        token_ids, finite = torch.cat(chosen, dim=1).tolist() if chosen else ([], [])  # the host waits here, once
        for sequence, token_id, is_finite in zip(sequences, token_ids, finite, strict=True):
            if is_finite:
                tokens[sequence.request_id] = token_id
            else:
                failed.setdefault(sequence.request_id, NOT_FINITE)
        return tokens

    def _adjust(self, scores: Tensor, sequence: Sequence) -> None:
        """Apply bias and penalties in place, with the tokens up to now."""
        if adjusts(sequence.sampling):
            adjust(scores, sequence.sampling, self._history(sequence))

    def _history(self, sequence: Sequence) -> TokenHistory | None:
        if not has_penalties(sequence.sampling):
            return None
        history = self._histories.get(sequence)
        if history is None:
            prompt = sequence.token_ids[: sequence.num_prompt_tokens]
            history = self._histories[sequence] = TokenHistory(prompt)
        history.catch_up(sequence.token_ids)
        return history


def _choose_rows(scores: Tensor, sequences: list[Sequence]) -> Tensor:
    """One token per row of adjusted scores, and whether the row is finite: (2, rows)."""
    finite = scores.amax(dim=1).isfinite()
    tokens = scores.argmax(dim=1)
    drawn = [index for index, sequence in enumerate(sequences) if sequence.sampling.temperature > 0]
    if drawn:
        rows = send(torch.tensor(drawn), scores.device)
        chosen = [sequences[index] for index in drawn]
        seeds = [sequence.sampling.seed or 0 for sequence in chosen]
        numbers = uniforms_tensor(seeds, [sequence.num_tokens for sequence in chosen], scores.device)
        filters = Filters.of([sequence.sampling for sequence in chosen], scores.device)
        tokens.index_copy_(0, rows, draw_rows(scores.index_select(0, rows), filters, numbers))
    return torch.stack((tokens, finite))


def _precision(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype is torch.float64 else torch.float32


@contextlib.contextmanager
def _alone(sequence: Sequence, failed: dict[str, str]) -> Iterator[None]:
    """What goes wrong with one row is written down for its request and stops nobody else."""
    try:
        yield
    except Exception as error:
        log.exception("request %s could not be sampled", sequence.request_id)
        failed[sequence.request_id] = f"The next token could not be chosen: {reason(error)}. Ask again."
