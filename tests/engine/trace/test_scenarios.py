"""The scenarios say what they promise, without a model."""

import random

import pytest

from engine.config import EngineConfig
from engine.errors import UsageError
from engine.trace.policies import continuous_steps, static_steps
from engine.trace.scenarios import scenario, seed, slots


def test_slots_has_the_lengths_of_the_yardstick() -> None:
    """Forty answers, exponential with mean 24 and cap 64, drawn from seed 0 until they fit."""
    rng, expected = random.Random(0), []
    while len(expected) < 40:
        length = round(rng.expovariate(1 / 24))
        if 1 <= length <= 64:
            expected.append(length)
    lengths = [request.max_tokens for request in slots().requests]
    assert lengths == expected
    assert sum(lengths) == 1060
    assert static_steps(lengths, 8) == 268
    assert continuous_steps(lengths, 8) == 160
    assert slots().max_num_seqs == 8


def test_seed_has_ten_requests_that_end_one_by_one() -> None:
    requests = seed().requests
    assert len(requests) == 10
    limits = [request.max_tokens for request in requests]
    assert limits == sorted(set(limits))
    assert (requests[0].name, limits[0]) == ("Short answer", 5)
    assert (requests[-1].name, limits[-1]) == ("Essay", 64)
    assert (seed().num_kv_blocks, seed().block_size) == (222, 256)


@pytest.mark.parametrize("name", ["slots", "seed"])
def test_requests_have_exact_lengths(name: str) -> None:
    chosen = scenario(name)
    requests = chosen.to_requests()
    assert [request.request_id for request in requests] == [each.name for each in chosen.requests]
    assert len({request.request_id for request in requests}) == len(requests)
    assert all(request.sampling.ignore_eos and request.sampling.temperature == 0 for request in requests)
    assert [request.sampling.max_tokens for request in requests] == [each.max_tokens for each in chosen.requests]


def test_what_the_user_gives_wins() -> None:
    base = EngineConfig(model="m", dtype="float32")
    plain = seed().configure(base, block_size=None, num_kv_blocks=None)
    assert (plain.block_size, plain.num_kv_blocks) == (256, 222)
    assert (plain.model, plain.dtype) == ("m", "float32")
    other = seed().configure(base, block_size=32, num_kv_blocks=50)
    assert (other.block_size, other.num_kv_blocks) == (32, 50)


@pytest.mark.parametrize(("given", "sentence"), [((17, None), "block size is 17"), ((None, 0), "0 KV blocks")])
def test_what_cannot_be_is_refused_not_replaced(given: tuple[int | None, int | None], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        slots().configure(EngineConfig(), block_size=given[0], num_kv_blocks=given[1])


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"'seeds'; choose slots or seed\."):
        scenario("seeds")
