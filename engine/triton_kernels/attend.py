"""Attention over the paged cache: store new keys and values, attend, and join the parts of split sequences.

One program attends with a tile of BLOCK_M queries, which share a key head: BLOCK_M // GROUP tokens times the GROUP
heads of a token. It walks the keys in tiles of BLOCK_N with a running softmax in base 2 and float32
(https://arxiv.org/abs/2205.14135); with SPLITS > 1 several programs share the keys of a tile and `join` adds them up.
Slots that hold no key of the sequence are never loaded, so it does not matter what is in them.
"""

import triton
import triton.language as tl


@triton.jit
def store(
    k, v, keys, values, slots, k_row_stride, v_row_stride,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEADS_PADDED: tl.constexpr, DIM_PADDED: tl.constexpr,
):  # fmt: skip
    """Write row i of k and v (rows, kv_heads, head_dim), contiguous within a row, to slot i of the cache of a layer."""
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    heads, dims = tl.arange(0, HEADS_PADDED)[:, None], tl.arange(0, DIM_PADDED)[None, :]
    inside = (heads < KV_HEADS) & (dims < HEAD_DIM)
    within = heads * HEAD_DIM + dims
    target = slot * (KV_HEADS * HEAD_DIM) + within
    row = row.to(tl.int64)
    tl.store(keys + target, tl.load(k + row * k_row_stride + within, mask=inside), mask=inside)
    tl.store(values + target, tl.load(v + row * v_row_stride + within, mask=inside), mask=inside)


@triton.jit
def _sequence_of(tile, first_rows, num_sequences, TOKENS: tl.constexpr):
    """The sequence that a tile belongs to: sequence s owns the tiles from first_rows[s] // TOKENS + s on."""
    low, high = num_sequences * 0, num_sequences
    while low < high:
        middle = (low + high) // 2
        if tl.load(first_rows + middle) // TOKENS + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def _key_offsets(table, first, positions, seen, kv_head, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
                 KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr):  # fmt: skip
    """Where the keys of a tile of positions lie: 64 bits, for caches beyond 2^31 elements."""
    if BLOCK_SIZE % BLOCK_N == 0:  # all of them in one block
        slots = tl.load(table + first // BLOCK_SIZE).to(tl.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
    else:
        blocks = tl.load(table + positions // BLOCK_SIZE, mask=seen, other=0).to(tl.int64)
        slots = blocks * BLOCK_SIZE + positions % BLOCK_SIZE
    return (slots * KV_HEADS + kv_head) * HEAD_DIM


@triton.jit
def _add_tile(
    total, weight, top, q, q_positions, keys, values, table, first, end, kv_head, scale, window,
    BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr, WINDOWED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of keys more: what each query has added up, the sum of its weights, and its highest score."""
    positions = first + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM_PADDED)
    seen = positions < end
    offsets = _key_offsets(table, first, positions, seen, kv_head, BLOCK_SIZE, BLOCK_N, KV_HEADS, HEAD_DIM)
    offsets = offsets[:, None] + dims[None, :]
    if MASKED:
        inside = seen[:, None] & (dims < HEAD_DIM)[None, :]
        k = tl.load(keys + offsets, mask=inside, other=0.0)
        v = tl.load(values + offsets, mask=inside, other=0.0)
    elif HEAD_DIM == DIM_PADDED:
        k = tl.load(keys + offsets)
        v = tl.load(values + offsets)
    else:
        k = tl.load(keys + offsets, mask=(dims < HEAD_DIM)[None, :], other=0.0)
        v = tl.load(values + offsets, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if MASKED:
        visible = seen[None, :] & (positions[None, :] <= q_positions[:, None])
        if WINDOWED:
            visible = visible & (positions[None, :] > q_positions[:, None] - window)
        scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    # A query that has seen nothing yet has no top to subtract.
    base = tl.where(new_top == float("-inf"), 0.0, new_top) if MASKED else new_top
    weights = tl.exp2(scores - base[:, None])
    kept = tl.exp2(top - base)
    total = tl.dot(weights.to(v.dtype), v, total * kept[:, None], input_precision="ieee")
    return total, weight * kept + tl.sum(weights, axis=1), new_top


@triton.jit(do_not_specialize=["num_sequences", "table_stride", "window"])
def attend(
    out, part_totals, part_weights, q, keys, values, tables, first_rows, lengths,
    num_sequences, table_stride, window, scale, q_row_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    ONE_TOKEN: tl.constexpr, WINDOWED: tl.constexpr, SPLITS: tl.constexpr, SPLIT_TILES: tl.constexpr,
):  # fmt: skip
    """Programs (tiles, kv_heads, splits); q and out (rows, heads, head_dim), out contiguous.

    ONE_TOKEN: row i is the last token of sequence i. Otherwise the rows of sequence s are first_rows[s] to
    first_rows[s + 1]. `lengths` count the tokens of a sequence up to its last row; `scale` includes log2(e).
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    TOKENS: tl.constexpr = BLOCK_M // GROUP
    kv_head = tl.program_id(1)
    if ONE_TOKEN:
        sequence = tl.program_id(0)
        first_row, num_tokens, first_token = sequence, 1, 0
    else:
        tile = tl.num_programs(0) - 1 - tl.program_id(0)  # late tiles have the most keys: they start first
        sequence = _sequence_of(tile, first_rows, num_sequences, TOKENS)
        first_row = tl.load(first_rows + sequence)
        num_tokens = tl.load(first_rows + sequence + 1) - first_row
        first_token = (tile - (first_row // TOKENS + sequence)) * TOKENS
        if first_token >= num_tokens:
            return
    length = tl.load(lengths + sequence).to(tl.int32)
    start = length - num_tokens

    lanes = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM_PADDED)
    tokens = first_token + lanes // GROUP
    heads = kv_head * GROUP + lanes % GROUP
    is_query = (lanes < TOKENS * GROUP) & (tokens < num_tokens)
    rows = (first_row + tokens).to(tl.int64)
    inside = is_query[:, None] & (dims < HEAD_DIM)[None, :]
    q_offsets = rows[:, None] * q_row_stride + heads[:, None] * HEAD_DIM + dims[None, :]
    queries = tl.load(q + q_offsets, mask=inside, other=0.0)
    q_positions = start + tokens

    begin, end = 0, tl.minimum(length, start + first_token + TOKENS)
    if WINDOWED:
        begin = tl.maximum(start + first_token - window + 1, 0) // BLOCK_N * BLOCK_N
    if SPLITS > 1:
        part = tl.maximum(tl.cdiv(tl.cdiv(end - begin, BLOCK_N), SPLITS), SPLIT_TILES) * BLOCK_N
        begin += tl.program_id(2) * part
        end = tl.minimum(end, begin + part)
        if begin >= end:
            return
    plain_end = begin  # up to here every query sees every key
    if not WINDOWED:
        everywhere = tl.minimum(start + first_token + 1, end)
        plain_end = begin + tl.maximum(everywhere - begin, 0) // BLOCK_N * BLOCK_N

    total = tl.zeros((BLOCK_M, DIM_PADDED), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    table = tables + sequence.to(tl.int64) * table_stride
    for first in range(begin, plain_end, BLOCK_N):
        total, weight, top = _add_tile(
            total, weight, top, queries, q_positions, keys, values, table, first, end, kv_head, scale, window,
            BLOCK_SIZE, BLOCK_N, KV_HEADS, HEAD_DIM, DIM_PADDED, WINDOWED, False,
        )  # fmt: skip
    for first in range(plain_end, end, BLOCK_N):
        total, weight, top = _add_tile(
            total, weight, top, queries, q_positions, keys, values, table, first, end, kv_head, scale, window,
            BLOCK_SIZE, BLOCK_N, KV_HEADS, HEAD_DIM, DIM_PADDED, WINDOWED, True,
        )  # fmt: skip

    head_rows = rows * HEADS + heads
    if SPLITS > 1:
        parts = head_rows * SPLITS + tl.program_id(2)
        tl.store(part_totals + parts[:, None] * HEAD_DIM + dims[None, :], total, mask=inside)
        tl.store(part_weights + parts * 2, weight, mask=is_query)
        tl.store(part_weights + parts * 2 + 1, top, mask=is_query)
    else:
        result = total / tl.where(is_query, weight, 1.0)[:, None]
        tl.store(out + head_rows[:, None] * HEAD_DIM + dims[None, :], result.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["window"])
def join(
    out, part_totals, part_weights, lengths, window,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM_PADDED: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOWED: tl.constexpr, SPLITS: tl.constexpr, SPLIT_TILES: tl.constexpr,
):  # fmt: skip
    """Programs (rows, heads): the result of one query from the parts that `attend` left, SPLITS a power of two."""
    row, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + row).to(tl.int32)
    begin = 0
    if WINDOWED:
        begin = tl.maximum(length - window, 0) // BLOCK_N * BLOCK_N
    part = tl.maximum(tl.cdiv(tl.cdiv(length - begin, BLOCK_N), SPLITS), SPLIT_TILES) * BLOCK_N
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, DIM_PADDED)
    used = splits < tl.cdiv(length - begin, part)
    head_row = row.to(tl.int64) * HEADS + head
    parts = head_row * SPLITS + splits
    tops = tl.load(part_weights + parts * 2 + 1, mask=used, other=float("-inf"))
    share = tl.exp2(tops - tl.max(tops, axis=0))
    share = tl.where(used, share, 0.0)
    weight = tl.sum(share * tl.load(part_weights + parts * 2, mask=used, other=0.0), axis=0)
    inside = used[:, None] & (dims < HEAD_DIM)[None, :]
    totals = tl.load(part_totals + parts[:, None] * HEAD_DIM + dims[None, :], mask=inside, other=0.0)
    result = tl.sum(totals * share[:, None], axis=0) / weight
    tl.store(out + head_row * HEAD_DIM + dims, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)
