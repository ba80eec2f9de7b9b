"""What a layer does row by row between its matrix products: norms, rotation, gate. In float32 inside."""

import triton
import triton.language as tl


@triton.jit
def add_norm(
    total, normed, hidden, delta, weight, eps,
    SIZE: tl.constexpr, SIZE_PADDED: tl.constexpr, HAS_DELTA: tl.constexpr,
):  # fmt: skip
    """One program a row: total = hidden + delta, rounded as it is kept, and its RMSNorm. Without delta no total."""
    columns = tl.arange(0, SIZE_PADDED)
    inside = columns < SIZE
    offsets = tl.program_id(0).to(tl.int64) * SIZE + columns
    x = tl.load(hidden + offsets, mask=inside, other=0.0)
    if HAS_DELTA:
        x = (x.to(tl.float32) + tl.load(delta + offsets, mask=inside, other=0.0).to(tl.float32)).to(x.dtype)
        tl.store(total + offsets, x, mask=inside)
    exact = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(exact * exact, axis=0) / SIZE + eps)
    result = exact * scale * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + offsets, result.to(x.dtype), mask=inside)


@triton.jit
def rotate(
    heads, cos, sin, q_norm, k_norm, row_stride, eps,
    Q_HEADS: tl.constexpr, TURNED_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF_PADDED: tl.constexpr,
    HEADS_AT_ONCE: tl.constexpr, HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Programs (rows, groups of heads): RMSNorm of each of the first TURNED_HEADS heads, then rotation, in place.

    cos and signed sin (rows, head_dim), the sine of the first half negative.
    """
    HALF: tl.constexpr = HEAD_DIM // 2
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS_AT_ONCE + tl.arange(0, HEADS_AT_ONCE)[:, None]
    dims = tl.arange(0, HALF_PADDED)[None, :]
    in_half = dims < HALF
    inside = (head < TURNED_HEADS) & in_half
    first = heads + row * row_stride + head * HEAD_DIM + dims
    x, y = tl.load(first, mask=inside, other=0.0), tl.load(first + HALF, mask=inside, other=0.0)
    dtype = x.dtype
    x, y = x.to(tl.float32), y.to(tl.float32)
    if HAS_NORMS:
        scale = tl.rsqrt((tl.sum(x * x, axis=1) + tl.sum(y * y, axis=1)) / HEAD_DIM + eps)[:, None]
        x *= scale * _norm_weight(q_norm, k_norm, head, dims, inside, Q_HEADS)
        y *= scale * _norm_weight(q_norm, k_norm, head, dims + HALF, inside, Q_HEADS)
    angles = row * HEAD_DIM + dims
    x_cos, y_cos = _read(cos + angles, in_half), _read(cos + angles + HALF, in_half)
    x_sin, y_sin = _read(sin + angles, in_half), _read(sin + angles + HALF, in_half)
    tl.store(first, (x * x_cos + y * x_sin).to(dtype), mask=inside)
    tl.store(first + HALF, (y * y_cos + x * y_sin).to(dtype), mask=inside)


@triton.jit
def _norm_weight(q_norm, k_norm, head, dims, inside, Q_HEADS: tl.constexpr):
    is_query = head < Q_HEADS
    for_q = tl.load(q_norm + dims + 0 * head, mask=inside & is_query, other=0.0)
    for_k = tl.load(k_norm + dims + 0 * head, mask=inside & (head >= Q_HEADS), other=0.0)
    return tl.where(is_query, for_q, for_k).to(tl.float32)


@triton.jit
def _read(pointers, inside):
    return tl.load(pointers, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def gate(out, gate_up, SIZE: tl.constexpr, AT_ONCE: tl.constexpr):
    """Programs (rows, slices): silu(gate) * up of (rows, 2 * SIZE), gate first."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    inside = columns < SIZE
    x = tl.load(gate_up + row * (2 * SIZE) + columns, mask=inside, other=0.0)
    up = tl.load(gate_up + row * (2 * SIZE) + SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    exact = x.to(tl.float32)
    tl.store(out + row * SIZE + columns, (exact / (1.0 + tl.exp(-exact)) * up).to(x.dtype), mask=inside)
