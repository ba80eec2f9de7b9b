"""The sampler against a twin that sorts the whole vocabulary in float64, and its draws against their distribution."""

import math
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.requests import SamplingParams
from engine.runner.philox import uniforms
from engine.runner.sampler import SampledRow, _invert, sample

# Upper 0.1 % points of chi-square by degrees of freedom.
CHI_SQUARE = {3: 16.266, 5: 20.515, 11: 31.264}


def row(position: int = 0, **sampling: Any) -> SampledRow:
    return SampledRow(SamplingParams(**sampling), position)


def random_logits(rows: int, vocab: int, seed: int, scale: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def distribution(logits: list[float], params: SamplingParams) -> list[tuple[int, float]]:
    """Token ids with their probabilities in the order in which the draw goes through them."""
    top = max(logits)
    weights = [math.exp((value - top) / params.temperature) for value in logits]
    total = math.fsum(weights)
    ranked = [(token_id, weight / total) for token_id, weight in enumerate(weights)]
    if params.top_k == 0 and params.top_p == 1.0:
        return ranked
    ranked.sort(key=lambda item: -item[1])
    ranked = normalised(ranked[: params.top_k or None])
    reached = list(accumulate(probability for _, probability in ranked))
    size = next((index + 1 for index, sum_ in enumerate(reached) if sum_ >= params.top_p), len(ranked))
    return normalised(ranked[:size])


def normalised(items: list[tuple[int, float]]) -> list[tuple[int, float]]:
    total = math.fsum(probability for _, probability in items)
    return [(token_id, probability / total) for token_id, probability in items]


def twin(logits: list[float], params: SamplingParams, position: int) -> int | None:
    """The token at which the running sum passes the number of (seed, position); None where rounding decides."""
    number = float(uniforms([params.seed or 0], [position])[0])
    items = distribution(logits, params)
    reached = list(accumulate(probability for _, probability in items))
    if min(abs(sum_ - number) for sum_ in reached) < 1e-9:
        return None
    return next((token for (token, _), sum_ in zip(items, reached, strict=True) if sum_ > number), items[-1][0])


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([1e-5, 0.1, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 50, 300, 5000]),
    seed=st.integers(0, 2**63 - 1),
)


@given(sampling=params, position=st.integers(0, 10_000), seed=st.integers(0, 500), vocab=st.sampled_from([2, 40, 700]))
@settings(max_examples=200, deadline=None)
def test_draws_are_the_twins(sampling: SamplingParams, position: int, seed: int, vocab: int) -> None:
    logits = random_logits(1, vocab, seed)
    expected = twin(logits[0].double().tolist(), sampling, position)
    assume(expected is not None)
    assert sample(logits, [SampledRow(sampling, position)]) == [expected]


@pytest.mark.parametrize("top_p", [0.9, 0.99, 0.9999])
def test_a_flat_distribution_needs_more_than_the_first_candidates(top_p: float) -> None:
    """Nearly equal tokens: the smallest set that reaches top-p has thousands."""
    logits = random_logits(1, 5000, 9, scale=0.1)
    values = logits[0].double().tolist()
    sampling = [SamplingParams(temperature=1.0, top_p=top_p, seed=seed) for seed in range(40)]
    assert len(distribution(values, sampling[0])) > 4000
    drawn = sample(logits.expand(40, -1), [SampledRow(each, 3) for each in sampling])
    assert drawn == [twin(values, each, 3) for each in sampling]
    assert len(set(drawn)) > 30


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 2.0}, {"top_k": 6}, {"top_p": 0.8}, {"top_k": 8, "top_p": 0.7, "temperature": 1.5}],
    ids=str,
)
@pytest.mark.parametrize("varied", ["seed", "position"])
def test_draws_follow_the_distribution(sampling: dict[str, Any], varied: str) -> None:
    """Pearson's chi-square over 4,000 draws whose seeds, or positions, are counted up."""
    settings_ = {"temperature": 1.0} | sampling
    logits = torch.tensor([[2.0, 1.9, 1.5, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0, -0.3, -0.5]])
    expected = dict(distribution(logits[0].tolist(), SamplingParams(**settings_)))
    count = 4000
    pairs = [(each, 11) if varied == "seed" else (11, each) for each in range(count)]
    drawn = sample(logits.expand(count, -1), [row(position, seed=seed, **settings_) for seed, position in pairs])
    assert set(drawn) == set(expected)
    chi_square = sum((drawn.count(token) - count * p) ** 2 / (count * p) for token, p in expected.items())
    degrees = len(expected) - 1
    limit = CHI_SQUARE.get(degrees) or degrees + 4 * math.sqrt(2 * degrees)
    assert chi_square < limit


def test_a_draw_does_not_depend_on_its_batch() -> None:
    logits = random_logits(12, 500, 4)
    rows = [
        row(position=index % 5, seed=index // 2, temperature=(0.0, 0.8, 1.5)[index % 3], top_p=(1.0, 0.9)[index % 2])
        for index in range(12)
    ]
    together = sample(logits, rows)
    assert [sample(logits[[index]], [rows[index]])[0] for index in range(12)] == together
    order = [7, 3, 11, 0, 5]
    assert sample(logits[order], [rows[index] for index in order]) == [together[index] for index in order]


def test_seed_and_position_decide() -> None:
    logits = random_logits(1, 500, 5, scale=0.5)
    drawn = [
        sample(logits, [row(position, seed=seed, temperature=1.0)])[0] for seed in range(20) for position in range(20)
    ]
    assert len(set(drawn)) > 200, "neither seed nor position may be without effect"


def test_greedy_takes_the_first_of_the_best() -> None:
    logits = torch.tensor([[0.0, 4.0, 4.0, 1.0], [9.0, -1.0, 9.0, 0.0]])
    assert sample(logits, [row(temperature=0.0)] * 2) == [1, 0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-5, 2.0])
@pytest.mark.parametrize("top_p", [1e-9, 0.9, 1.0])
@pytest.mark.parametrize("top_k", [0, 3])
def test_extreme_settings_and_scores_stay_in_bounds(temperature: float, top_p: float, top_k: int) -> None:
    logits = torch.tensor([[-float("inf"), 3e38, -3e38, 3e38, 0.0], [-1e4, -1e4, -1e4, -1e4, -1e4]])
    rows = [row(seed=seed, temperature=temperature, top_p=top_p, top_k=top_k) for seed in range(2)]
    first, second = sample(logits, rows)
    assert first in {1, 3}
    assert 0 <= second < 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_tiny_temperature_is_greedy_in_any_dtype(dtype: torch.dtype) -> None:
    logits = random_logits(20, 100, 6).to(dtype)
    clear = [index for index, best in enumerate(logits.topk(2)[0].tolist()) if best[0] > best[1]]
    chosen = logits[clear]
    rows = [row(seed=index, temperature=1e-5) for index in range(len(clear))]
    assert sample(chosen, rows) == chosen.argmax(dim=-1).tolist()


def test_a_likely_token_can_be_drawn_alone() -> None:
    """Where top-p is reached by the first token, no other may come, whatever the number."""
    logits = torch.tensor([[0.0, 10.0, 0.0]]).expand(200, -1)
    assert set(sample(logits, [row(seed=seed, temperature=1.0, top_p=0.5) for seed in range(200)])) == {1}


def test_missing_probabilities_are_never_drawn() -> None:
    logits = torch.full((300, 6), -float("inf"))
    logits[:, [1, 4]] = 0.0
    drawn = sample(logits, [row(seed=seed, temperature=1.0) for seed in range(300)])
    assert set(drawn) == {1, 4}


@pytest.mark.parametrize(("number", "expected"), [(0.0, 1), (0.49, 1), (0.5, 3), (1 - 2**-53, 3)])
def test_the_smallest_and_the_largest_number_hit_possible_tokens(number: float, expected: int) -> None:
    assert _invert(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64), number) == expected
