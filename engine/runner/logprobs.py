"""Log probabilities of the model itself: of the raw scores, before bias, penalties, temperature and filters."""

import torch
from torch import Tensor

from engine.events import TokenLogprob, TokenLogprobs
from engine.runner.row_draw import ScoreRow


def logprobs_of(logits: Tensor, token_id: int, count: int) -> TokenLogprobs:
    """Of one row of logits (vocab,): the chosen token's, and those of the `count` most likely ones, best first."""
    scores = logits if logits.dtype is torch.float64 else logits.float()
    ids = [token_id, *_most_likely(scores, count)]
    values = scores[ids].double() - scores.logsumexp(0).double()
    chosen, *top = map(TokenLogprob, ids, values.tolist())
    return TokenLogprobs(chosen, tuple(top))


def _most_likely(scores: Tensor, count: int) -> list[int]:
    """The largest of the scores (vocab,); of equal ones the smallest id comes first."""
    if scores.device.type == "cpu":
        ranked: list[int] = ScoreRow(scores).most_likely(count).tolist()
        return ranked
    return scores.sort(descending=True, stable=True).indices[:count].tolist()
