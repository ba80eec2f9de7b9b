"""Draws tokens for many rows at once, in tensors, on any device and without waiting for it. This is the definition.

Order, as in transformers: temperature, top-k, top-p, min-p.

- top-k keeps the k best scores and every score equal to the k-th.
- top-p keeps the smallest set of the likeliest tokens whose probability reaches it; of equal ones at its edge, those
  with the smallest ids.
- min-p keeps the tokens with at least this fraction of the best one's probability.

The draw goes through the kept tokens by rising id and takes the first at which the running sum of their weights exceeds
`number` times the sum of all. By id rather than by rank: scores that differ by rounding between two devices may change
places in a ranking, but not in this order, so two devices draw apart only where the number lies within rounding of the
border between two tokens, or a token within rounding of a filter's edge.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.requests import SamplingParams
from engine.runner.send import send

LEAST_TEMPERATURE = 1e-30  # below it only the best remain anyway, and its inverse is still a float32


@dataclass(frozen=True, slots=True)
class Filters:
    """Settings of rows as float64 columns (rows, 1); top_k is 0, top_p 1 and min_p 0 where they are off.

    `are_off` says that they are off in every row.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    are_off: bool

    @classmethod
    def of(cls, rows: list[SamplingParams], device: torch.device) -> "Filters":
        """Settings of these rows, sent to the device together."""
        table = torch.tensor(
            [[max(row.temperature, LEAST_TEMPERATURE), row.top_k, row.top_p, row.min_p] for row in rows],
            dtype=torch.float64,
        )  # fmt: skip
        are_off = all(row.top_k == 0 and row.top_p >= 1.0 and row.min_p == 0.0 for row in rows)
        temperature, top_k, top_p, min_p = send(table, device).unsqueeze(-1).unbind(1)
        return cls(temperature, top_k, top_p, min_p, are_off)


def draw_rows(scores: Tensor, filters: Filters, numbers: Tensor) -> Tensor:
    """Token ids (rows,) at `numbers` (rows,) of each row's distribution; scores (rows, vocab)."""
    running = kept_weights(scores, filters).cumsum(dim=1)
    ends = running[:, -1:].contiguous()
    index = torch.searchsorted(running, ends * numbers.unsqueeze(1), right=True)
    # Rounding never leads behind the last token that has a weight.
    return index.minimum(torch.searchsorted(running, ends)).squeeze(1)


def kept_weights(scores: Tensor, filters: Filters) -> Tensor:
    """Weights (rows, vocab) in float64, not normalised: the best token has 1, tokens that are filtered out 0."""
    if filters.are_off:  # the same, without sorting the vocabulary
        return ((scores.double() - scores.amax(dim=1, keepdim=True).double()) / filters.temperature).exp()
    ranked, ids = scores.double().sort(dim=1, descending=True, stable=True)
    weights = ((ranked - ranked[:, :1]) / filters.temperature).exp()
    last = (filters.top_k.long() - 1).clamp(0, scores.shape[1] - 1)
    weights = weights.where((filters.top_k == 0) | (ranked >= ranked.gather(1, last)), 0.0)
    running = weights.cumsum(dim=1)
    before = torch.nn.functional.pad(running[:, :-1], (1, 0))
    kept = (filters.top_p >= 1.0) | (before < filters.top_p * running[:, -1:])
    kept &= weights >= filters.min_p
    return torch.zeros_like(weights).scatter_(1, ids, weights.where(kept, 0.0))
