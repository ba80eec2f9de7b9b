"""A random number for each (seed, position): Philox 4x32-10, the same on every device and in every batch.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox4x32(counter: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ten rounds over counters (4, rows) with keys (2, rows), all 32-bit words held in uint64; words (4, rows)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0, product1 & _LOW, (product0 >> _SHIFT) ^ c3 ^ k1, product0 & _LOW,
        )  # fmt: skip
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return np.stack((c0, c1, c2, c3))


def uniforms(seeds: list[int], positions: list[int]) -> NDArray[np.float64]:
    """One number in [0, 1) per row, from 53 random bits; seeds are taken modulo 2**64."""
    seed = np.array([value % 2**64 for value in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    zero = np.zeros_like(position)
    words = philox4x32(
        np.stack((position & _LOW, position >> _SHIFT, zero, zero)), np.stack((seed & _LOW, seed >> _SHIFT))
    )
    bits = (words[0] << np.uint64(21)) ^ (words[1] >> np.uint64(11))
    numbers: NDArray[np.float64] = bits.astype(np.float64) / 2.0**53
    return numbers
