"""Norm, rotation and gate: kernels that go through a tensor row by row.

All tensors are bfloat16, all sums float32. A kernel takes one array of int64: addresses, sizes, and float32 numbers by
their bits, in the order of its first line. Each thread of the team computes the rows of its number.
"""

import numpy as np
from numba import carray, cfunc, njit, types

from engine.native.scalars import BFLOAT16_BYTES, FASTMATH, exponential, float_of_bits, narrow, u16_at, widen
from engine.native.team import team_size, thread_index

_SIGNATURE = types.void(types.CPointer(types.int64))


@njit(fastmath=FASTMATH, error_model="numpy")
def _normalise(x, weight, out, size, eps):
    """out = x / sqrt(mean(x^2) + eps) * weight (RMSNorm, https://arxiv.org/abs/1910.07467)."""
    squares = types.float32(0.0)
    for i in range(size):
        value = widen(x[i])
        squares += value * value
    scale = types.float32(1.0) / np.sqrt(squares / types.float32(size) + eps)
    for i in range(size):
        out[i] = narrow(widen(x[i]) * scale * widen(weight[i]))


@njit(fastmath=FASTMATH, error_model="numpy")
def _add(x, delta, out, size):
    for i in range(size):
        out[i] = narrow(widen(x[i]) + widen(delta[i]))


@cfunc(_SIGNATURE, cache=True, nopython=True)
def add_norm(arguments):
    """total = hidden + delta and out = norm(total), each (rows, size); with no delta (0) out = norm(hidden)."""
    hidden, delta, weight, total, out, rows, size, eps = carray(arguments, (8,))
    scale = u16_at(weight, size)
    for row in range(thread_index(), rows, team_size()):
        at = row * size * BFLOAT16_BYTES
        x = u16_at(hidden + at, size)
        if delta != 0:
            summed = u16_at(total + at, size)
            _add(x, u16_at(delta + at, size), summed, size)
            x = summed
        _normalise(x, scale, u16_at(out + at, size), size, float_of_bits(types.uint32(eps)))


@njit(fastmath=FASTMATH, error_model="numpy")
def _rotate(x, cos, sin, half):
    """In place; `sin` carries the minus sign of its first half."""
    for i in range(half):
        low, high = widen(x[i]), widen(x[i + half])
        x[i] = narrow(low * widen(cos[i]) + high * widen(sin[i]))
        x[i + half] = narrow(high * widen(cos[i + half]) + low * widen(sin[i + half]))


@cfunc(_SIGNATURE, cache=True, nopython=True)
def rotate_heads(arguments):
    """Rotate the query and key heads of each row by its angles, in place; before it normalise them, unless weight 0."""
    heads, cos, sin, q_norm, k_norm, rows, row_heads, q_heads, k_heads, head_dim, eps = carray(arguments, (11,))
    for row in range(thread_index(), rows, team_size()):
        row_cos = u16_at(cos + row * head_dim * BFLOAT16_BYTES, head_dim)
        row_sin = u16_at(sin + row * head_dim * BFLOAT16_BYTES, head_dim)
        for head in range(q_heads + k_heads):
            x = u16_at(heads + (row * row_heads + head) * head_dim * BFLOAT16_BYTES, head_dim)
            norm = q_norm if head < q_heads else k_norm
            if norm != 0:
                _normalise(x, u16_at(norm, head_dim), x, head_dim, float_of_bits(types.uint32(eps)))
            _rotate(x, row_cos, row_sin, head_dim // 2)


@njit(fastmath=FASTMATH, error_model="numpy")
def _gate(gate, up, out, size):
    for i in range(size):
        x = widen(gate[i])
        small = exponential(-abs(x))
        sigmoid = (types.float32(1.0) if x >= types.float32(0.0) else small) / (types.float32(1.0) + small)
        out[i] = narrow(x * sigmoid * widen(up[i]))


@cfunc(_SIGNATURE, cache=True, nopython=True)
def gate_up(arguments):
    """out = silu(gate) * up of rows that hold gate and up side by side (SwiGLU, https://arxiv.org/abs/2002.05202)."""
    both, out, rows, size = carray(arguments, (4,))
    for row in range(thread_index(), rows, team_size()):
        row_bytes = size * BFLOAT16_BYTES
        gate = both + 2 * row * row_bytes
        _gate(u16_at(gate, size), u16_at(gate + row_bytes, size), u16_at(out + row * row_bytes, size), size)
