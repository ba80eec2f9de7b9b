"""What can be asked: ranges, types, and one sentence for each refusal."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.requests import Request, SamplingParams

NUMBERS = {
    "temperature": (0, 2),
    "min_p": (0, 1),
    "repetition_penalty": (0.1, 10),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
}
COUNTS = {"top_k": 0, "max_tokens": 1, "logprobs": 0}
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, False, "1", None, (1,), 1j]


def refusal(**settings: Any) -> str:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**settings)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("name", list(NUMBERS))
def test_the_ends_of_a_range_are_taken_and_what_lies_beyond_is_not(name: str) -> None:
    least, most = NUMBERS[name]
    for value in (least, most, float(least), float(most), (least + most) / 2):
        assert getattr(SamplingParams(**{name: value}), name) == value
    for value in (math.nextafter(least, -9), math.nextafter(most, 99), -100, 100):
        assert repr(value) in refusal(**{name: value})


@pytest.mark.parametrize("name", [*NUMBERS, "top_p"])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    assert repr(value) in refusal(**{name: value})


@pytest.mark.parametrize("value", [0, 0.0, -0.1, 1.0000001, 2])
def test_top_p_lies_above_0_and_at_most_at_1(value: float) -> None:
    assert refusal(top_p=value) == f"top-p is {value}; it must be a number above 0 and at most 1."
    assert SamplingParams(top_p=5e-324).top_p > 0
    assert SamplingParams(top_p=1).top_p == 1


@pytest.mark.parametrize("name", [*COUNTS, "seed"])
@pytest.mark.parametrize("value", [1.0, math.nan, True, "3", (3,)], ids=repr)
def test_counts_are_whole_numbers(name: str, value: object) -> None:
    assert repr(value) in refusal(**{name: value})


@pytest.mark.parametrize("name", list(COUNTS))
def test_counts_have_a_least(name: str) -> None:
    least = COUNTS[name]
    assert getattr(SamplingParams(**{name: least}), name) == least
    assert str(least - 1) in refusal(**{name: least - 1})


def test_top_k_none_is_refused_but_the_others_have_a_none() -> None:
    refusal(top_k=None)
    assert SamplingParams(max_tokens=None, logprobs=None, seed=None) == SamplingParams()


def test_log_probabilities_have_a_most() -> None:
    assert SamplingParams(logprobs=20).logprobs == 20
    assert refusal(logprobs=21) == "Log probabilities of 21 tokens were asked for; give a number from 0 to 20."


@given(seed=st.integers())
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert SamplingParams(seed=seed).seed == seed


@pytest.mark.parametrize("stop", ["END", ["END"], (1,), (b"END",), ("END", None), None, ("a", "")], ids=repr)
def test_stop_strings_are_a_tuple_of_strings(stop: Any) -> None:
    refusal(stop=stop)


@pytest.mark.parametrize(
    ("bias", "word"),
    [
        ({5: 1.0}, "tuple of pairs"),
        (((5,),), "tuple of pairs"),
        ((5, 1.0), "tuple of pairs"),
        (((5, 100.5),), "between -100.0 and 100.0"),
        (((5, math.nan),), "token 5 is nan"),
        (((5, True),), "token 5 is True"),
        (((5, "1"),), "token 5 is '1'"),
        (((-1, 1.0),), "the token -1"),
        (((1.5, 1.0),), "the token 1.5"),
        (((True, 1.0),), "the token True"),
        (((5, 1.0), (5, 2.0)), "twice"),
        (None, "tuple of pairs"),
    ],
    ids=repr,
)
def test_a_bias_that_cannot_be_added(bias: Any, word: str) -> None:
    assert word in refusal(logit_bias=bias)


def test_a_bias_at_its_ends() -> None:
    bias = ((0, -100.0), (5, 100), (7, 0.5))
    assert SamplingParams(logit_bias=bias).logit_bias == bias


@pytest.mark.parametrize("value", [1, "yes", None], ids=repr)
def test_ignoring_end_tokens_is_yes_or_no(value: Any) -> None:
    refusal(ignore_eos=value)


def test_values_can_be_compared_and_kept_in_sets() -> None:
    first = SamplingParams(logit_bias=((5, 1.0),), stop=("END",))
    assert first == SamplingParams(logit_bias=((5, 1.0),), stop=("END",))
    assert len({first, SamplingParams()}) == 2


@pytest.mark.parametrize("prompt", [{}, {"text": "a", "token_ids": (1,)}], ids=repr)
def test_exactly_one_prompt(prompt: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="exactly one prompt"):
        Request(request_id="a", **prompt)
