"""Each processor, and all of them in their order, against transformers' in float64."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.requests import SamplingParams
from engine.runner.batch_draw import Filters, kept_weights
from engine.runner.penalties import TokenHistory, adjust
from tests.engine.runner.sampling_twin import is_clear


def theirs(sampling: SamplingParams) -> LogitsProcessorList:
    """In the order in which `generate` puts them together."""
    processors = LogitsProcessorList()
    if sampling.logit_bias:
        processors.append(SequenceBiasLogitsProcessor({(token,): value for token, value in sampling.logit_bias}))
    if sampling.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    processors.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    processors.append(MinPLogitsWarper(sampling.min_p))
    return processors


def scores_of(seed: int, vocab: int, scale: float = 3.0) -> Tensor:
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def ours(scores: Tensor, sampling: SamplingParams, prompt: list[int], answer: list[int]) -> Tensor:
    """Probabilities (vocab,)."""
    scores = scores.clone()
    history = TokenHistory(prompt)
    history.catch_up([*prompt, *answer])
    adjust(scores, sampling, history)
    weights = kept_weights(scores.unsqueeze(0), Filters.of([sampling], scores.device))[0]
    return weights / weights.sum()


def assert_equal_distributions(sampling: SamplingParams, scores: Tensor, ids: list[int]) -> None:
    expected = theirs(sampling)(torch.tensor([ids]), scores.unsqueeze(0).clone())[0].softmax(0)
    found = ours(scores, sampling, ids[:3], ids[3:])
    assert torch.equal(found > 0, expected > 0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


one_setting: dict[str, Any] = {
    "temperature": st.builds(SamplingParams, temperature=st.floats(0.05, 2.0)),
    "top-k": st.builds(SamplingParams, top_k=st.integers(1, 80)),
    "top-p": st.builds(SamplingParams, top_p=st.floats(0.01, 0.999)),
    "min-p": st.builds(SamplingParams, min_p=st.floats(0.0, 1.0)),
    "repetition": st.builds(SamplingParams, repetition_penalty=st.floats(0.1, 10.0)),
    "bias": st.builds(SamplingParams, logit_bias=st.just(((2, 7.5), (0, -3.0), (59, 100.0)))),
    "all": st.builds(
        SamplingParams,
        temperature=st.floats(0.05, 2.0),
        top_k=st.integers(0, 80),
        top_p=st.floats(0.01, 1.0),
        min_p=st.sampled_from([0.0, 0.01, 0.3]),
        repetition_penalty=st.floats(0.5, 3.0),
        logit_bias=st.just(((2, 7.5), (0, -3.0))),
    ),
}


@pytest.mark.parametrize("name", list(one_setting))
@given(data=st.data(), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_kept_tokens_and_probabilities_are_transformers(name: str, data: st.DataObject, seed: int) -> None:
    sampling = data.draw(one_setting[name])
    scores = scores_of(seed, 60)
    ids = data.draw(st.lists(st.integers(0, 59), min_size=4, max_size=30))
    adjusted = scores.clone()
    history = TokenHistory(ids)
    adjust(adjusted, sampling, history)
    assume(is_clear(adjusted.tolist(), sampling, -1.0, 1e-9))
    assert_equal_distributions(sampling, scores, ids)


@given(seed=st.integers(0, 10_000), top_k=st.integers(1, 70), levels=st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_top_k_keeps_equal_scores_as_transformers_does(seed: int, top_k: int, levels: int) -> None:
    scores = (scores_of(seed, 60, 1.0) * levels).round()
    assert_equal_distributions(SamplingParams(temperature=1.0, top_k=top_k), scores, [1, 2, 3, 4])


@given(seed=st.integers(0, 10_000), top_p=st.floats(0.01, 0.99), levels=st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_top_p_keeps_as_many_equal_scores_as_transformers(seed: int, top_p: float, levels: int) -> None:
    """Which of the equal ones at the edge are kept is left to the sort there; here it is the smallest ids."""
    scores = (scores_of(seed, 60, 1.0) * levels).round()
    sampling = SamplingParams(temperature=1.0, top_p=top_p)
    assume(is_clear(scores.tolist(), sampling, -1.0, 1e-9))
    expected = theirs(sampling)(torch.tensor([[1]]), scores.unsqueeze(0))[0].softmax(0)
    found = ours(scores, sampling, [1], [])
    torch.testing.assert_close(found.sort().values, expected.sort().values, rtol=1e-9, atol=1e-300)
    edge = scores[found > 0].min()
    equal = (scores == edge).nonzero().squeeze(1)
    num_kept = int((found[equal] > 0).sum())
    assert (found[equal] > 0).tolist() == [index < num_kept for index in range(len(equal))]
