"""What sampling means, spelled out in plain Python over whole vocabularies: slow, and written apart from the engine."""

import math
from collections import Counter
from itertools import accumulate

from engine.requests import SamplingParams


def adjusted(logits: list[float], params: SamplingParams, prompt: list[int], answer: list[int]) -> list[float]:
    """Scores after bias and penalties."""
    scores = list(logits)
    for token_id, value in params.logit_bias:
        scores[token_id] += value
    for token_id in {*prompt, *answer}:
        score = scores[token_id]
        scores[token_id] = score * params.repetition_penalty if score < 0 else score / params.repetition_penalty
    for token_id, count in Counter(answer).items():
        scores[token_id] -= count * params.frequency_penalty
        scores[token_id] -= params.presence_penalty
    return scores


def distribution(scores: list[float], params: SamplingParams) -> dict[int, float]:
    """Probability of each token that is kept, by token id in rising order."""
    top = max(scores)
    weights = {token: math.exp((score - top) / params.temperature) for token, score in enumerate(scores)}
    ranked = sorted(weights, key=lambda token: (-scores[token], token))
    if params.top_k:
        worst = scores[ranked[min(params.top_k, len(ranked)) - 1]]
        ranked = [token for token in ranked if scores[token] >= worst]
    if params.top_p < 1:
        reach = params.top_p * math.fsum(weights[token] for token in ranked)
        sums = accumulate(weights[token] for token in ranked)
        size = next((size for size, sum_ in enumerate(sums, 1) if sum_ >= reach), len(ranked))
        ranked = ranked[:size]
    ranked = [token for token in ranked if weights[token] >= params.min_p]
    total = math.fsum(weights[token] for token in ranked)
    return {token: weights[token] / total for token in sorted(ranked)}


def is_clear(scores: list[float], params: SamplingParams, number: float, margin: float) -> bool:
    """Whether no decision, of a filter or of the draw, lies within `margin` of going the other way."""
    top = max(scores)
    weights = sorted((math.exp((score - top) / params.temperature) for score in scores), reverse=True)
    if params.top_k:
        weights = [weight for weight in weights if weight >= weights[min(params.top_k, len(weights)) - 1]]
    total = math.fsum(weights)
    if params.top_p < 1 and any(abs(sum_ / total - params.top_p) < margin for sum_ in accumulate(weights)):
        return False
    if params.min_p and any(abs(weight / params.min_p - 1) < margin for weight in weights):
        return False
    kept = distribution(scores, params)
    return all(abs(sum_ - number) >= margin for sum_ in accumulate(kept.values()))


def drawn(scores: list[float], params: SamplingParams, number: float) -> int:
    """The first kept token, by rising id, at which the running sum passes the number."""
    kept = distribution(scores, params)
    sums = accumulate(kept.values())
    return next((token for token, sum_ in zip(kept, sums, strict=True) if sum_ > number), [*kept][-1])
