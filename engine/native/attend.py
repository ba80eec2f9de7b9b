"""Attention of single query tokens over paged keys and values; compiled for one head size.

The head size is a constant of the compiled code: its loops have no ends to check, which halves their time.
"""

from typing import Any

from numba import carray, cfunc, njit, types

from engine.native.scalars import (
    BFLOAT16_BYTES,
    FASTMATH,
    FLOAT32_BYTES,
    INT64_BYTES,
    exponential,
    f32_at,
    float_of_bits,
    i64_at,
    narrow,
    u16_at,
    widen,
)  # fmt: skip
from engine.native.team import team_size, thread_index

HEADS_AT_ONCE = 4
"""Query heads that share one pass over keys and values; a smaller rest is filled up with zeros."""


_ZERO = types.float32(0.0)


def scratch_floats(head_dim: int, width: int) -> int:
    """float32 that one thread needs: queries and results of four heads, and their scores for `width` tokens."""
    return HEADS_AT_ONCE * (2 * head_dim + width)


@njit(fastmath={"nnan", "nsz", "reassoc"})
def _highest(scores, count):
    """The maximum; anything where one is NaN, which the exponentials then show."""
    highest = scores[0]
    for i in range(count):
        highest = max(highest, scores[i])
    return highest


@njit(fastmath=FASTMATH, error_model="numpy")
def _softmax(scores, count):
    """Exponentials in place; returns one over their sum."""
    highest = _highest(scores, count)
    total = types.float32(0.0)
    for i in range(count):
        scores[i] = exponential(scores[i] - highest)
        total += scores[i]
    return types.float32(1.0) / total


@njit(fastmath=FASTMATH, error_model="numpy")
def _score_one(q, k, head_dim):
    total = _ZERO
    for i in range(head_dim):
        total += widen(k[i]) * q[i]
    return total


@njit(fastmath=FASTMATH, error_model="numpy")
def _score_four(q, k, scores, at, width, head_dim):
    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
    for i in range(head_dim):
        key = widen(k[i])
        a += key * q[i]
        b += key * q[head_dim + i]
        c += key * q[2 * head_dim + i]
        d += key * q[3 * head_dim + i]
    scores[at] = a
    scores[width + at] = b
    scores[2 * width + at] = c
    scores[3 * width + at] = d


@njit(fastmath=FASTMATH, error_model="numpy")
def _blend_one(result, weight, v, head_dim):
    for i in range(head_dim):
        result[i] += weight * widen(v[i])


@njit(fastmath=FASTMATH, error_model="numpy")
def _blend_four(result, weights, at, width, v, next_v, is_pair, head_dim):
    """Add one or two values to the results of four heads."""
    a, b, c, d = weights[at], weights[width + at], weights[2 * width + at], weights[3 * width + at]
    e, f, g, h = _ZERO, _ZERO, _ZERO, _ZERO
    if is_pair:
        next_at = at + 1
        e, f = weights[next_at], weights[width + next_at]
        g, h = weights[2 * width + next_at], weights[3 * width + next_at]
    for i in range(head_dim):
        x, y = widen(v[i]), widen(next_v[i])
        result[i] += a * x + e * y
        result[head_dim + i] += b * x + f * y
        result[2 * head_dim + i] += c * x + g * y
        result[3 * head_dim + i] += d * x + h * y


@njit(fastmath=FASTMATH, error_model="numpy")
def _load_queries(address, count, factor, queries, head_dim):
    for h in range(count):
        x = u16_at(address + h * head_dim * BFLOAT16_BYTES, head_dim)
        for i in range(head_dim):
            queries[h * head_dim + i] = widen(x[i]) * factor
    for i in range(count * head_dim, HEADS_AT_ONCE * head_dim):
        queries[i] = _ZERO


@njit(fastmath=FASTMATH, error_model="numpy")
def _score(queries, keys, table, block_size, stride, scores, first, length, width, alone, head_dim):
    """Scores of the tokens from `first` to `length`, block by block; tokens lie `stride` bytes apart."""
    position = first
    while position < length:
        offset = position % block_size
        count = min(block_size - offset, length - position)
        address = keys + (table[position // block_size] * block_size + offset) * stride
        for i in range(count):
            key = u16_at(address + i * stride, head_dim)
            if alone:
                scores[position - first + i] = _score_one(queries, key, head_dim)
            else:
                _score_four(queries, key, scores, position - first + i, width, head_dim)
        position += count


@njit(fastmath=FASTMATH, error_model="numpy")
def _blend(result, values, table, block_size, stride, weights, first, length, width, alone, head_dim):
    """The weighted sum of the values of the tokens from `first` to `length`, not yet divided."""
    result[:] = _ZERO
    position = first
    while position < length:
        offset = position % block_size
        count = min(block_size - offset, length - position)
        address = values + (table[position // block_size] * block_size + offset) * stride
        _blend_block(result, address, stride, weights, position - first, count, width, alone, head_dim)
        position += count


@njit(fastmath=FASTMATH, error_model="numpy")
def _blend_block(result, address, stride, weights, at, count, width, alone, head_dim):
    if alone:
        for i in range(count):
            _blend_one(result, weights[at + i], u16_at(address + i * stride, head_dim), head_dim)
        return
    for i in range(0, count, 2):
        is_pair = i + 1 < count
        v = u16_at(address + i * stride, head_dim)
        next_v = u16_at(address + (i + is_pair) * stride, head_dim)
        _blend_four(result, weights, at + i, width, v, next_v, is_pair, head_dim)


@njit(fastmath=FASTMATH, error_model="numpy")
def _store(result, share, address, head_dim):
    out = u16_at(address, head_dim)
    for i in range(head_dim):
        out[i] = narrow(result[i] * share)


@njit
def _copy(source, target, head_dim):
    from_row, to_row = u16_at(source, head_dim), u16_at(target, head_dim)
    for i in range(head_dim):
        to_row[i] = from_row[i]


def make_attend(head_dim: int) -> Any:
    """The kernel for heads of this size."""

    @cfunc(types.void(types.CPointer(types.int64)), cache=True, nopython=True)
    def attend(arguments):
        """Store the key and value of each row's token, then attend with its queries.

        A task is one key head of one row, with all the query heads that share it.
        """
        (
            q, k, v, slots, tables, lengths, key_cache, value_cache, out, scratch,
            rows, q_stride, k_stride, v_stride, kv_heads, group, block_size, table_width, window, scale, width,
        ) = carray(arguments, (21,))  # fmt: skip
        head_bytes = head_dim * BFLOAT16_BYTES
        stride = kv_heads * head_bytes
        mine = scratch + types.int64(thread_index()) * HEADS_AT_ONCE * (2 * head_dim + width) * FLOAT32_BYTES
        queries = f32_at(mine, HEADS_AT_ONCE * head_dim)
        result = f32_at(mine + HEADS_AT_ONCE * head_dim * FLOAT32_BYTES, HEADS_AT_ONCE * head_dim)
        scores = f32_at(mine + HEADS_AT_ONCE * 2 * head_dim * FLOAT32_BYTES, HEADS_AT_ONCE * width)
        for task in range(thread_index(), rows * kv_heads, team_size()):
            row, head = task // kv_heads, task % kv_heads
            keys, values = key_cache + head * head_bytes, value_cache + head * head_bytes
            slot = i64_at(slots, rows)[row] * stride
            _copy(k + (row * k_stride + head) * head_bytes, keys + slot, head_dim)
            _copy(v + (row * v_stride + head) * head_bytes, values + slot, head_dim)
            table = i64_at(tables + row * table_width * INT64_BYTES, table_width)
            length = i64_at(lengths, rows)[row]
            first = max(length - window, 0) if window > 0 else 0
            for done in range(0, group, HEADS_AT_ONCE):
                heads = min(group - done, HEADS_AT_ONCE)
                query_head = head * group + done
                from_q = q + (row * q_stride + query_head) * head_bytes
                _load_queries(from_q, heads, float_of_bits(types.uint32(scale)), queries, head_dim)
                _score(queries, keys, table, block_size, stride, scores, first, length, width, heads == 1, head_dim)
                for h in range(heads):  # the queries are done with: their place keeps the shares
                    queries[h] = _softmax(scores[h * width : h * width + length - first], length - first)
                _blend(result, values, table, block_size, stride, scores, first, length, width, heads == 1, head_dim)
                to = out + (row * kv_heads * group + query_head) * head_bytes
                for h in range(heads):
                    _store(result[h * head_dim : (h + 1) * head_dim], queries[h], to + h * head_bytes, head_dim)

    return attend
