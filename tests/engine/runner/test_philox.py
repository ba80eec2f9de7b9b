"""Philox 4x32-10 against the known answers of its authors' Random123 library, and the numbers made from it."""

import numpy as np
import pytest

from engine.runner.philox import philox4x32, uniforms

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
