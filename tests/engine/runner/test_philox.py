"""Philox 4x32-10 against the known answers of its authors' Random123 library, and the numbers made from it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.runner.philox import NumberStream, philox4x32, uniforms, uniforms_tensor

ONES = 0xFFFFFFFF
# kat_vectors of Random123, philox4x32 with 10 rounds: counter, key, answer. The last one is made of digits of pi.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def columns(words: list[tuple[int, ...]]) -> np.ndarray:
    return np.array(words, dtype=np.uint64).T


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], answer: tuple[int, ...]) -> None:
    assert philox4x32(columns([counter]), columns([key])).ravel().tolist() == list(answer)


def test_rows_do_not_know_each_other() -> None:
    counters, keys, answers = zip(*KNOWN_ANSWERS, strict=True)
    assert philox4x32(columns(list(counters)), columns(list(keys))).T.tolist() == [list(answer) for answer in answers]


def test_numbers_take_the_first_53_bits() -> None:
    """Seed and position 0 are the first known answer: its first word, then 21 bits of the second."""
    bits = (0x6627E8D5 << 21) | (0xE169C58D >> 11)
    assert uniforms([0], [0]).tolist() == [bits / 2**53]


def test_seed_and_position_beyond_32_bits_count() -> None:
    seeds = [0, 1, 1 << 32, (1 << 63) - 1, -1]
    assert len(set(uniforms(seeds, [7] * 5).tolist())) == 5
    assert uniforms([-1], [7]) == uniforms([2**64 - 1], [7])
    assert len(set(uniforms([5] * 3, [0, 1, 1 << 32]).tolist())) == 3


def test_numbers_lie_evenly_between_0_and_1() -> None:
    """Kolmogorov-Smirnov: the largest distance to the diagonal, at the 0.1 % level."""
    for numbers in (uniforms([3] * 4000, list(range(4000))), uniforms(list(range(4000)), [3] * 4000)):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        ranks = np.arange(1, 4001) / 4000
        assert np.abs(np.sort(numbers) - ranks).max() < 1.95 / np.sqrt(4000)


# --- on a device ---

CPU = torch.device("cpu")


@given(pairs=st.lists(st.tuples(st.integers(-(2**63), 2**64), st.integers(0, 2**40)), min_size=1, max_size=20))
def test_tensors_hold_the_same_numbers(pairs: list[tuple[int, int]]) -> None:
    seeds, positions = map(list, zip(*pairs, strict=True))
    assert uniforms_tensor(seeds, positions, CPU).tolist() == uniforms(seeds, positions).tolist()


@given(seed=st.integers(0, 2**64), positions=st.lists(st.integers(0, 300), min_size=1, max_size=30))
def test_a_stream_gives_the_number_of_each_position_in_any_order(seed: int, positions: list[int]) -> None:
    stream = NumberStream(seed)
    assert [stream.at(each) for each in positions] == uniforms([seed] * len(positions), positions).tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card")
def test_a_card_gives_the_same_numbers() -> None:
    seeds, positions = list(range(1000)), [7 * seed for seed in range(1000)]
    assert uniforms_tensor(seeds, positions, torch.device("cuda")).tolist() == uniforms(seeds, positions).tolist()
