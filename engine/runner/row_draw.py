"""One row of scores on the CPU: draws the token that `batch_draw` defines without ranking the whole vocabulary.

Whatever top-k, top-p or min-p keep lies above some score that is cheap to find; only the tokens above it are ranked.
Weights are in the precision of the scores, their sums in float64.
"""

import math
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.requests import SamplingParams
from engine.runner.batch_draw import LEAST_TEMPERATURE

_FOLDS = 32
_SMALL_VOCAB = 64 * _FOLDS
_GROUP = 256  # tokens whose weights are summed together in a draw from the whole vocabulary
_LIMITS = (64, 1024)  # tokens with at least 1 / limit of what top-p leaves out are tried before all are ranked

Row = NDArray[np.floating]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ScoreRow:
    """Scores (vocab,) of one row, float32 or float64, penalties applied."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores
        self._values: Row = scores.numpy()
        self._num_groups = len(self._values) // _FOLDS
        # A token in fold i and group j has the id i * groups + j; what is left over is no part of any group.
        self._groups = self._folded.max(axis=0)

    @cached_property
    def top(self) -> float:
        """The largest score; NaN where any of them is."""
        best = self._groups.max(initial=-math.inf)
        return float(np.maximum(best, self._rest.max(initial=-math.inf)))

    def best(self) -> int:
        """The first of the tokens with the largest score."""
        return int((self._values == self.top).argmax())

    def most_likely(self, count: int) -> Ids:
        """Ids (count,) of the largest scores, best first; of equal ones the smallest id comes first."""
        ids = self._ids_from(self._reached_by(count)) if count else np.empty(0, dtype=np.int64)
        order = np.argsort(-self._values[ids], kind="stable")
        ranked: Ids = ids[order[:count]]
        return ranked

    def draw(self, sampling: SamplingParams, number: float) -> int:
        """The token at `number`, in [0, 1), of what temperature, top-k, top-p and min-p leave; `top` is finite."""
        if sampling.top_k == 0 and sampling.top_p == 1.0 and sampling.min_p == 0.0:
            return _draw_from_all(self._weights(self._scores, sampling), number)
        ids, weights, total = self._candidates(sampling)
        kept = _keep(weights, total, sampling)
        if ids is None:
            return _draw_from_all(weights * kept, number)
        chosen = np.flatnonzero(kept)
        running = weights[chosen].cumsum(dtype=np.float64)
        return int(ids[chosen[_first_beyond(running, running[-1] * number)]])

    @property
    def _folded(self) -> Row:
        return self._values[: self._num_groups * _FOLDS].reshape(_FOLDS, self._num_groups)

    @property
    def _rest(self) -> Row:
        return self._values[self._num_groups * _FOLDS :]

    def _weights(self, scores: Tensor, sampling: SamplingParams) -> Row:
        """exp((score - top) / temperature): 1 for the best."""
        weights: Row = torch.sub(scores, self.top).mul_(1.0 / _temperature(sampling)).exp_().numpy()
        return weights

    def _candidates(self, sampling: SamplingParams) -> tuple[Ids | None, Row, float]:
        """At least all tokens that are kept, by rising id, their weights, and the total that top-p refers to.

        None stands for the whole vocabulary.
        """
        if sampling.top_p < 1.0 and not sampling.top_k:
            return self._candidates_for_top_p(sampling)
        ids = self._ids_from(self._bound(sampling))
        weights = self._weights(torch.from_numpy(self._values[ids]), sampling)
        return ids, weights, _sum_of_best(weights, sampling.top_k)

    def _bound(self, sampling: SamplingParams) -> float:
        """A score that no kept token is below, from top-k and min-p."""
        bound = self._reached_by(sampling.top_k)
        if sampling.min_p > 0 and sampling.top_p == 1.0:  # top-p still counts what min-p takes away
            bound = max(bound, self.top + _temperature(sampling) * (math.log(sampling.min_p) - 1e-3))
        return bound

    def _reached_by(self, count: int) -> float:
        """A score that at least `count` tokens reach: one in each of so many groups. -inf for 0, or for too many."""
        if not 0 < count <= self._num_groups:
            return -math.inf
        return float(np.partition(self._groups, -count)[-count])

    def _candidates_for_top_p(self, sampling: SamplingParams) -> tuple[Ids | None, Row, float]:
        weights = self._weights(self._scores, sampling)
        total = _sum(weights)
        left_out = total * (1.0 - sampling.top_p)
        for limit in _LIMITS:
            ids = self._ids_from(self.top + _temperature(sampling) * math.log(left_out / limit))
            candidates = weights[ids]
            if _sum(candidates) > sampling.top_p * total * (1 + 1e-6):
                return ids, candidates, total
        return None, weights, total

    def _ids_from(self, bound: float) -> Ids:
        """Ids in rising order of all scores that are not below the bound."""
        hit = np.flatnonzero(self._groups >= bound)
        if len(self._values) < _SMALL_VOCAB or 8 * len(hit) > self._num_groups:
            return np.flatnonzero(self._values >= bound)
        folds, columns = np.nonzero(self._folded[:, hit] >= bound)
        ids = folds * self._num_groups + hit[columns]
        rest = np.flatnonzero(self._rest >= bound)
        return np.concatenate((ids, self._num_groups * _FOLDS + rest)) if len(rest) else ids


def _temperature(sampling: SamplingParams) -> float:
    return max(sampling.temperature, LEAST_TEMPERATURE)


def _sum(weights: Row) -> float:
    # torch adds 49,152 numbers in half of numpy's time, and as carefully.
    return float(torch.from_numpy(weights).sum())


def _sum_of_best(weights: Row, count: int) -> float:
    """Sum of the `count` largest weights and all that equal the last of them; of all where count is 0."""
    if 0 < count < len(weights):
        weights = weights[weights >= np.partition(weights, -count)[-count]]
    return _sum(weights)


def _keep(weights: Row, total: float, sampling: SamplingParams) -> Mask:
    """Which candidates stay: the best ones, and of equal ones at the edge those with the smallest ids."""
    ranked = -np.sort(-weights)
    size = len(ranked)
    if 0 < sampling.top_k < size:
        size = int(np.count_nonzero(ranked >= ranked[sampling.top_k - 1]))
    if sampling.top_p < 1.0:
        running = torch.from_numpy(ranked[:size]).cumsum(0, dtype=torch.float64).numpy()
        size = min(size, int(running.searchsorted(sampling.top_p * total)) + 1)
    if sampling.min_p > 0.0:
        size = min(size, int(np.count_nonzero(ranked >= sampling.min_p)))
    edge = ranked[size - 1]
    if size == len(ranked) or ranked[size] < edge:
        all_of_them: Mask = weights >= edge
        return all_of_them
    kept: Mask = weights > edge
    equal = np.flatnonzero(weights == edge)
    kept[equal[: size - np.count_nonzero(kept)]] = True
    return kept


def _draw_from_all(weights: Row, number: float) -> int:
    """First the group of tokens, then the token in it: a running sum of 192 groups instead of 49,152 tokens."""
    whole = len(weights) // _GROUP * _GROUP
    sums = torch.from_numpy(weights[:whole]).view(-1, _GROUP).sum(dim=1).numpy()
    running = np.append(sums, weights[whole:].sum()).cumsum(dtype=np.float64)
    target = running[-1] * number
    group = _first_beyond(running, target)
    before = running[group - 1] if group else 0.0
    inside = weights[group * _GROUP : (group + 1) * _GROUP].cumsum(dtype=np.float64)
    return group * _GROUP + _first_beyond(inside, target - before)


def _first_beyond(running: NDArray[np.float64], target: float) -> int:
    """The first place where the running sum exceeds the target; rounding never leads behind the last weight."""
    last = int(running.searchsorted(running[-1]))
    return min(int(running.searchsorted(target, side="right")), last)
