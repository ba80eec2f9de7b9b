"""The sampler against a twin in plain Python over the whole vocabulary, and its draws against their distribution."""

import bisect
import gc
import logging
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.requests import SamplingParams
from engine.runner import sampler as sampler_module
from engine.runner.batch_draw import Filters, draw_rows, kept_weights
from engine.runner.philox import uniforms, uniforms_tensor
from engine.runner.row_draw import ScoreRow
from engine.runner.sampler import NOT_FINITE, Sampled, Sampler
from engine.scheduling.sequence import Sequence
from tests.engine.runner.sampling_twin import adjusted, distribution, drawn, is_clear

# Upper 0.1 % points of chi-square by degrees of freedom.
CHI_SQUARE = {3: 16.266, 5: 20.515, 11: 31.264}
Row = tuple[int, SamplingParams]


def row(position: int = 1, **sampling: Any) -> Row:
    return position, SamplingParams(**sampling)


def sequences(rows: list[Row]) -> list[Sequence]:
    """Sequences whose next token stands at these positions."""
    return [Sequence(f"row {index}", [0] * position, params) for index, (position, params) in enumerate(rows)]


def sample(logits: Tensor, rows: list[Row]) -> list[int]:
    sampled = Sampler().sample(logits, sequences(rows))
    assert not sampled.failed
    return list(sampled.tokens.values())


def sample_together(logits: Tensor, rows: list[Row]) -> list[int]:
    """The form for devices, here on tensors of the CPU."""
    failed: dict[str, str] = {}
    tokens = Sampler()._choose_together(logits, sequences(rows), failed)
    assert not failed
    return list(tokens.values())


both_forms = pytest.mark.parametrize("sample", [sample, sample_together], ids=["row-by-row", "together"])
Sample = Callable[[Tensor, list[Row]], list[int]]


def random_logits(rows: int, vocab: int, seed: int, scale: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def number_of(params: SamplingParams, position: int) -> float:
    return float(uniforms([params.seed or 0], [position])[0])


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([1e-5, 0.1, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 50, 300, 5000]),
    min_p=st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)
vocabularies = st.sampled_from([2, 31, 40, 700, 2050])


@both_forms
@given(
    sampling=params, position=st.integers(1, 500), seed=st.integers(0, 500), vocab=vocabularies,
    scale=st.sampled_from([0.1, 1.0, 3.0, 8.0]), dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_draws_are_the_twins(
    sample: Sample, sampling: SamplingParams, position: int, seed: int, vocab: int, scale: float, dtype: torch.dtype
) -> None:
    """With bf16 a score is often that of many tokens: the filters' edges are full of equal ones."""
    logits = random_logits(1, vocab, seed, scale).to(dtype)
    scores, number = logits[0].double().tolist(), number_of(sampling, position)
    assume(is_clear(scores, sampling, number, 1e-9 if dtype is torch.float64 else 1e-5))
    assert sample(logits, [(position, sampling)]) == [drawn(scores, sampling, number)]


@given(sampling=params, seed=st.integers(0, 500), vocab=vocabularies, levels=st.sampled_from([3, 40, 10_000]))
@settings(max_examples=80, deadline=None)
def test_the_kept_tokens_and_their_probabilities_are_the_twins(
    sampling: SamplingParams, seed: int, vocab: int, levels: int
) -> None:
    """Every token is hit in the middle of its part of [0, 1), and no other token comes."""
    scores = (random_logits(1, vocab, seed).double() * levels / 10).round()[0] * 10 / levels
    assume(is_clear(scores.tolist(), sampling, 0.5, 1e-9) or sampling.top_p == 1)
    expected = distribution(scores.tolist(), sampling)
    before = 0.0
    places = []
    for token, probability in expected.items():
        if probability > 1e-9:
            places.append((token, before + probability / 2))
        before += probability
    chosen = places[:: max(len(places) // 40, 1)]
    candidates = ScoreRow(scores)
    assert [candidates.draw(sampling, number) for _, number in chosen] == [token for token, _ in chosen]
    numbers = torch.tensor([number for _, number in chosen], dtype=torch.float64)
    filters = Filters.of([sampling] * len(chosen), scores.device)
    assert draw_rows(scores.expand(len(chosen), -1), filters, numbers).tolist() == [token for token, _ in chosen]


@both_forms
@pytest.mark.parametrize("top_p", [0.05, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.1, 1.0, 2.5])
def test_top_p_of_flat_distributions(sample: Sample, top_p: float, scale: float) -> None:
    """From some dozen to many thousand tokens are kept: more than any first guess holds."""
    logits = random_logits(1, 12_000, 9, scale)
    sampling = [SamplingParams(temperature=1.0, top_p=top_p, seed=seed) for seed in range(40)]
    kept = distribution(logits[0].double().tolist(), sampling[0])
    running = list(accumulate(kept.values()))
    chosen = sample(logits.expand(40, -1), [(3, each) for each in sampling])
    for params, token in zip(sampling, chosen, strict=True):
        number = number_of(params, 3)
        expected = bisect.bisect_right(running, number)
        if abs(running[expected] - number) > 1e-6 < abs(running[max(expected - 1, 0)] - number):
            assert token == list(kept)[expected]


@both_forms
@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 2.0}, {"top_k": 6}, {"top_p": 0.8}, {"top_k": 8, "top_p": 0.7, "temperature": 1.5},
     {"min_p": 0.2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("varied", ["seed", "position"])
def test_draws_follow_the_distribution(sample: Sample, sampling: dict[str, Any], varied: str) -> None:
    """Pearson's chi-square over 1,000 draws whose seeds, or positions, are counted up."""
    settings_ = {"temperature": 1.0} | sampling
    logits = torch.tensor([[2.0, 1.9, 1.5, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0, -0.3, -0.5]])
    expected = distribution(logits[0].tolist(), SamplingParams(**settings_))
    count = 1000
    pairs = [(each, 11) if varied == "seed" else (11, 1 + each) for each in range(count)]
    chosen = sample(logits.expand(count, -1), [row(position, seed=seed, **settings_) for seed, position in pairs])
    assert set(chosen) == set(expected)
    chi_square = sum((chosen.count(token) - count * p) ** 2 / (count * p) for token, p in expected.items())
    degrees = len(expected) - 1
    limit = CHI_SQUARE.get(degrees) or degrees + 4 * math.sqrt(2 * degrees)
    assert chi_square < limit


@both_forms
def test_a_draw_does_not_depend_on_its_batch(sample: Sample) -> None:
    logits = random_logits(12, 500, 4)
    rows = [
        row(position=1 + index % 5, seed=index // 2, temperature=(0.0, 0.8, 1.5)[index % 3],
            top_p=(1.0, 0.9)[index % 2], top_k=(0, 0, 0, 9)[index % 4])
        for index in range(12)
    ]  # fmt: skip
    together = sample(logits, rows)
    assert [sample(logits[[index]], [rows[index]])[0] for index in range(12)] == together
    order = [7, 3, 11, 0, 5]
    assert sample(logits[order], [rows[index] for index in order]) == [together[index] for index in order]


@given(data=st.data(), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_both_forms_draw_the_same_in_mixed_batches(data: st.DataObject, seed: int) -> None:
    """As on two devices: apart only where a decision lies within rounding."""
    chosen = data.draw(st.lists(params | st.just(SamplingParams(temperature=0.0)), min_size=1, max_size=8))
    logits = random_logits(len(chosen), 2100, seed).bfloat16()
    clear = [
        index
        for index, each in enumerate(chosen)
        if each.temperature == 0 or is_clear(logits[index].double().tolist(), each, number_of(each, 7), 1e-5)
    ]
    rows = [(7, chosen[index]) for index in clear]
    assert sample(logits[clear], rows) == sample_together(logits[clear], rows)


def test_seed_and_position_decide() -> None:
    logits = random_logits(1, 500, 5, scale=0.5)
    chosen = [
        sample(logits, [row(position, seed=seed, temperature=1.0)])[0]
        for seed in range(20)
        for position in range(1, 21)
    ]
    assert len(set(chosen)) > 200, "neither seed nor position may be without effect"


def test_the_numbers_of_a_growing_answer_are_those_of_its_positions() -> None:
    """The sampler computes numbers ahead: nothing of it may show, not after a preemption either."""
    (sequence,) = sequences([row(60, seed=9, temperature=1.0)])
    sampler = Sampler()
    for _ in range(150):
        logits = random_logits(1, 300, sequence.num_tokens)
        expected = sample(logits, [row(sequence.num_tokens, seed=9, temperature=1.0)])
        token = sampler.sample(logits, [sequence]).tokens["row 0"]
        assert [token] == expected
        assert sampler.sample(logits, [sequence]).tokens["row 0"] == token
        sequence.token_ids.append(token)


@both_forms
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_greedy_takes_the_first_of_the_best(sample: Sample, dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 4.0, 4.0, 1.0], [9.0, -1.0, 9.0, 0.0], [-3.0, -2.0, -2.0, -2.0]]).to(dtype)
    assert sample(logits, [row(temperature=0.0)] * 3) == [1, 0, 1]
    wide = torch.zeros(1, 5000, dtype=dtype)
    wide[0, [4990, 4999]] = 1.0
    assert sample(wide, [row(temperature=0.0)]) == [4990]


@both_forms
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-38, 1e-5, 2.0])
@pytest.mark.parametrize("top_p", [1e-9, 0.9, 1.0])
@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("min_p", [0.0, 1.0])
def test_extreme_settings_and_scores_stay_in_bounds(
    sample: Sample, temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    logits = torch.tensor([[-float("inf"), 3e38, -3e38, 3e38, 0.0], [-1e4, -1e4, -1e4, -1e4, -1e4]])
    rows = [row(seed=seed, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p) for seed in range(2)]
    first, second = sample(logits, rows)
    assert first in {1, 3}
    assert 0 <= second < 5


@both_forms
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("temperature", [5e-324, 1e-5])
def test_a_tiny_temperature_is_greedy_in_any_dtype(sample: Sample, dtype: torch.dtype, temperature: float) -> None:
    logits = random_logits(20, 100, 6).to(dtype)
    clear = [index for index, best in enumerate(logits.double().topk(2)[0].tolist()) if best[0] - best[1] > 1e-3]
    chosen = logits[clear]
    rows = [row(seed=index, temperature=temperature) for index in range(len(clear))]
    assert sample(chosen, rows) == chosen.argmax(dim=-1).tolist()


@both_forms
def test_a_likely_token_can_be_drawn_alone(sample: Sample) -> None:
    """Where top-p is reached by the first token, no other may come, whatever the number."""
    logits = torch.tensor([[0.0, 10.0, 0.0]]).expand(200, -1)
    assert set(sample(logits, [row(seed=seed, temperature=1.0, top_p=0.5) for seed in range(200)])) == {1}


@both_forms
@pytest.mark.parametrize("sampling", [{}, {"top_k": 5}, {"top_p": 0.999}, {"min_p": 0.001}], ids=str)
def test_missing_probabilities_are_never_drawn(sample: Sample, sampling: dict[str, Any]) -> None:
    logits = torch.full((300, 6), -float("inf"))
    logits[:, [1, 4]] = 0.0
    assert set(sample(logits, [row(seed=seed, temperature=1.0, **sampling) for seed in range(300)])) == {1, 4}


@pytest.mark.parametrize(("number", "expected"), [(0.0, 1), (0.49, 1), (0.5, 3), (1 - 2**-53, 3)])
@pytest.mark.parametrize("sampling", [{}, {"top_k": 4}, {"top_p": 0.99}, {"min_p": 0.01}], ids=str)
def test_the_smallest_and_the_largest_number_hit_possible_tokens(
    number: float, expected: int, sampling: dict[str, Any]
) -> None:
    scores = torch.tensor([[-1e9, 0.0, -1e9, 0.0, -1e9]])
    chosen = SamplingParams(temperature=1.0, **sampling)
    assert ScoreRow(scores[0]).draw(chosen, number) == expected
    numbers = torch.tensor([number], dtype=torch.float64)
    assert draw_rows(scores, Filters.of([chosen], scores.device), numbers).tolist() == [expected]


def test_the_logits_are_left_as_they_are() -> None:
    """Log probabilities are those of the model, whatever the penalties did."""
    logits = random_logits(2, 50, 3)
    before = logits.clone()
    rows = [row(4, repetition_penalty=2.0, temperature=0.0), row(4, logit_bias=((3, 5.0),))]
    sample(logits, rows)
    sample_together(logits, rows)
    assert torch.equal(logits, before)


# --- penalties and bias ---

penalties = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.8]),
    repetition_penalty=st.sampled_from([0.5, 1.0, 1.3, 10.0]),
    frequency_penalty=st.sampled_from([-2.0, 0.0, 0.4]),
    presence_penalty=st.sampled_from([-0.7, 0.0, 2.0]),
    logit_bias=st.dictionaries(st.integers(0, 39), st.floats(-100, 100), max_size=4).map(lambda d: tuple(d.items())),
    top_k=st.sampled_from([0, 3]),
    seed=st.integers(0, 1000),
)


@pytest.mark.parametrize("form", ["row-by-row", "together"])
@given(sampling=penalties, prompt=st.lists(st.integers(0, 39), min_size=1, max_size=20), seed=st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_penalties_over_a_growing_answer_are_the_twins(
    form: str, sampling: SamplingParams, prompt: list[int], seed: int
) -> None:
    sequence = Sequence("a", list(prompt), sampling)
    sampler = Sampler()
    for step in range(6):
        logits = random_logits(1, 40, seed * 7 + step).double()
        scores = adjusted(logits[0].tolist(), sampling, prompt, sequence.new_token_ids)
        number = number_of(sampling, sequence.num_tokens)
        if sampling.temperature == 0:
            expected = scores.index(max(scores))
        else:
            assume(is_clear(scores, sampling, number, 1e-9))
            expected = drawn(scores, sampling, number)
        if form == "together":
            token = sampler._choose_together(logits, [sequence], {})["a"]
        else:
            token = sampler.sample(logits, [sequence]).tokens["a"]
        assert token == expected
        sequence.token_ids.append(token)


def test_what_is_remembered_goes_with_the_sequence() -> None:
    sampler = Sampler()
    (sequence,) = sequences([row(5, temperature=1.0, repetition_penalty=1.2)])
    sampler.sample(random_logits(1, 50, 0), [sequence])
    assert len(sampler._histories) == len(sampler._numbers) == 1
    gone = weakref.ref(sequence)
    del sequence
    gc.collect()
    assert gone() is None
    assert len(sampler._histories) == len(sampler._numbers) == 0


# --- what fails, fails alone ---

NAN, INF = float("nan"), float("inf")
BROKEN = {
    "nan": (7, NAN),
    "inf": (7, INF),
    "nothing": (slice(None), -INF),
    "nan-first": (0, NAN),
    "all": (slice(None), NAN),
}
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1},
    {"temperature": 0.0, "repetition_penalty": 1.3, "logit_bias": ((7, -100.0),)},
]  # fmt: skip


@pytest.mark.parametrize("form", ["row-by-row", "together"])
@pytest.mark.parametrize("broken", list(BROKEN))
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("vocab", [40, 5003])
def test_scores_that_are_not_finite_end_one_row(form: str, broken: str, sampling: dict[str, Any], vocab: int) -> None:
    where, value = BROKEN[broken]
    logits = random_logits(3, vocab, 2)
    expected = sample(logits, [row(4, seed=index, **sampling) for index in range(3)])
    logits[1, where] = value
    rows = sequences([row(4, seed=index, **sampling) for index in range(3)])
    if form == "together":
        failed: dict[str, str] = {}
        tokens = Sampler()._choose_together(logits, rows, failed)
        sampled = Sampled(tokens, {}, failed)
    else:
        sampled = Sampler().sample(logits, rows)
    assert sampled.failed == {"row 1": NOT_FINITE}
    assert sampled.tokens == {"row 0": expected[0], "row 2": expected[2]}


def test_the_last_score_may_be_the_broken_one() -> None:
    """Vocabularies that are no multiple of a group have a rest of their own."""
    for vocab in (31, 33, 5003, 5024):
        logits = random_logits(1, vocab, 2)
        logits[0, -1] = NAN
        assert Sampler().sample(logits, sequences([row(temperature=0.0)])).failed


def test_a_row_that_raises_ends_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    choose = Sampler._choose

    def fail_for_one(self: Sampler, scores: Tensor, sequence: Sequence) -> int | None:
        if sequence.request_id == "row 1":
            raise ValueError("no such row")
        return choose(self, scores, sequence)

    monkeypatch.setattr(Sampler, "_choose", fail_for_one)
    with caplog.at_level(logging.CRITICAL, logger=sampler_module.__name__):
        sampled = Sampler().sample(random_logits(3, 50, 1), sequences([row()] * 3))
    assert sampled.failed == {"row 1": "The next token could not be chosen: no such row. Ask again."}
    assert set(sampled.tokens) == {"row 0", "row 2"}


# --- log probabilities ---


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("vocab", [20, 5003])
@pytest.mark.parametrize("count", [0, 1, 5, 20])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_log_probabilities_are_the_models_own(dtype: torch.dtype, vocab: int, count: int, temperature: float) -> None:
    logits = random_logits(1, vocab, 8).to(dtype)
    changed = {"repetition_penalty": 3.0, "logit_bias": ((3, 50.0),), "top_k": 5}
    (sequence,) = sequences([row(4, temperature=temperature, logprobs=count, **changed)])
    sampled = Sampler().sample(logits, [sequence])
    chosen, top = sampled.logprobs["row 0"]
    expected = logits[0].double().log_softmax(0).tolist()
    assert chosen.token_id == sampled.tokens["row 0"] == 3
    assert chosen.logprob == pytest.approx(expected[3], abs=1e-5)
    ranked = sorted(range(vocab), key=lambda token: (-expected[token], token))[:count]
    assert [each.token_id for each in top] == ranked
    assert [each.logprob for each in top] == pytest.approx([expected[token] for token in ranked], abs=1e-5)


def test_log_probabilities_only_where_they_are_asked_for() -> None:
    rows = sequences([row(temperature=0.0), row(temperature=0.0, logprobs=0)])
    assert set(Sampler().sample(random_logits(2, 30, 1), rows).logprobs) == {"row 1"}


def test_numbers_on_tensors_are_the_hosts() -> None:
    seeds, positions = [0, 5, 2**63 + 17, -1], [0, 9, 2**33, 1]
    assert uniforms_tensor(seeds, positions, torch.device("cpu")).tolist() == uniforms(seeds, positions).tolist()


@given(seed=st.integers(0, 1000), temperature=st.sampled_from([1e-3, 0.6, 1.0, 2.0]))
@settings(max_examples=20, deadline=None)
def test_without_filters_nothing_need_be_sorted(seed: int, temperature: float) -> None:
    scores = torch.randn(3, 500, generator=torch.Generator().manual_seed(seed)).bfloat16()
    scores[1, 40:60] = -math.inf
    filters = Filters.of([SamplingParams(temperature=temperature)] * 3, torch.device("cpu"))
    assert filters.are_off
    sorted_too = kept_weights(scores, replace(filters, are_off=False))
    torch.testing.assert_close(kept_weights(scores, filters), sorted_too, rtol=1e-15, atol=0)
