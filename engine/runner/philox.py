"""A random number for each (seed, position): Philox 4x32-10, the same on every device and in every batch.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.runner.send import send

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_LOW, _SHIFT = np.uint64(_MASK), np.uint64(32)
_STREAM_BLOCK = 64


def philox4x32(counter: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ten rounds over counters (4, rows) with keys (2, rows), all 32-bit words held in uint64; words (4, rows)."""
    multiplier0, multiplier1 = (np.uint64(value) for value in _MULTIPLIERS)
    step0, step1 = (np.uint64(value) for value in _KEY_STEPS)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = multiplier0 * c0, multiplier1 * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0, product1 & _LOW, (product0 >> _SHIFT) ^ c3 ^ k1, product0 & _LOW,
        )  # fmt: skip
        k0, k1 = (k0 + step0) & _LOW, (k1 + step1) & _LOW
    return np.stack((c0, c1, c2, c3))


def uniforms(seeds: list[int], positions: list[int]) -> NDArray[np.float64]:
    """One number in [0, 1) per row, from 53 random bits; seeds are taken modulo 2**64."""
    counter, key = (np.array(words, dtype=np.uint64) for words in _words(seeds, positions))
    words = philox4x32(counter, key)
    bits = (words[0] << np.uint64(21)) ^ (words[1] >> np.uint64(11))
    numbers: NDArray[np.float64] = bits.astype(np.float64) / 2.0**53
    return numbers


def uniforms_tensor(seeds: list[int], positions: list[int], device: torch.device) -> Tensor:
    """The same numbers (rows,) on a device. They come from the host: there, a step's rounds would be 400 launches."""
    return send(torch.from_numpy(uniforms(seeds, positions)), device)


def _words(seeds: list[int], positions: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Counters and keys as 32-bit words, low ones first."""
    zeros = [0] * len(positions)
    counter = [[value & _MASK for value in positions], [value >> 32 for value in positions], zeros, zeros]
    return counter, [[value & _MASK for value in seeds], [(value >> 32) & _MASK for value in seeds]]


class NumberStream:
    """The numbers of one seed, computed some positions ahead: one call of numpy costs as much for 64 rows as for 1."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._first = -_STREAM_BLOCK
        self._numbers: list[float] = []

    def at(self, position: int) -> float:
        """The number of (seed, position)."""
        if not 0 <= position - self._first < _STREAM_BLOCK:
            self._first = position
            positions = list(range(position, position + _STREAM_BLOCK))
            self._numbers = uniforms([self._seed] * _STREAM_BLOCK, positions).tolist()
        return self._numbers[position - self._first]
