"""The kernels as functions of torch tensors: bfloat16, on the CPU, contiguous unless said otherwise."""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.native import rows
from engine.native.attend import make_attend, scratch_floats
from engine.native.team import Team

_WORTH_A_TEAM = 24_000  # elements; below, one thread is done before the others have woken


def _bits(number: float) -> int:
    """A float32 as the integer that a kernel takes."""
    bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    return bits


def _address(kernel: Any) -> int:
    """Where the compiled code lies."""
    address: int = kernel.address
    return address


class Kernels:
    """Compiled kernels for one head size. Compiling takes seconds once; numba keeps the result on disk."""

    def __init__(self, team: Team, head_dim: int) -> None:
        self._team = team
        self._head_dim = head_dim
        self._add_norm = _address(rows.add_norm)
        self._rotate = _address(rows.rotate_heads)
        self._gate = _address(rows.gate_up)
        self._attend = _address(make_attend(head_dim))

    def add_norm(self, hidden: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """hidden + delta, and its RMSNorm; all (rows, size) but the weight (size,)."""
        num_rows, size = hidden.shape
        normed = torch.empty_like(hidden)
        total = hidden if delta is None else torch.empty_like(hidden)
        self._run(
            self._add_norm, hidden.numel(), hidden.data_ptr(), 0 if delta is None else delta.data_ptr(),
            weight.data_ptr(), total.data_ptr(), normed.data_ptr(), num_rows, size, _bits(eps),
        )  # fmt: skip
        return total, normed

    def rotate(
        self, heads: Tensor, cos: Tensor, sin: Tensor, *, num_heads: int, num_kv_heads: int, q_norm: Tensor | None,
        k_norm: Tensor | None, eps: float,
    ) -> None:  # fmt: skip
        """In place: normalise (where there is a weight) and rotate the query and key heads.

        Args:
            heads: (tokens, num_heads + 2 * num_kv_heads, head_dim): queries, keys, values.
            cos: one row (head_dim) for each token.
            sin: the same; its first half carries a minus sign.
            num_heads: query heads.
            num_kv_heads: key heads.
            q_norm: weight (head_dim,) of the queries' norm, if there is one.
            k_norm: that of the keys.
            eps: of the norms.
        """
        self._run(
            self._rotate, heads.numel(), heads.data_ptr(), cos.data_ptr(), sin.data_ptr(),
            0 if q_norm is None else q_norm.data_ptr(), 0 if k_norm is None else k_norm.data_ptr(),
            heads.shape[0], heads.shape[1], num_heads, num_kv_heads, self._head_dim, _bits(eps),
        )  # fmt: skip

    def gate(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of (rows, 2 * size), gate first: (rows, size)."""
        num_rows, both = gate_up.shape
        out = gate_up.new_empty(num_rows, both // 2)
        self._run(self._gate, gate_up.numel(), gate_up.data_ptr(), out.data_ptr(), num_rows, both // 2)
        return out

    def attention(
        self, *, slots: Tensor, tables: Tensor, lengths: Tensor, block_size: int, num_kv_heads: int
    ) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]:
        """Attention of single tokens, prepared for all layers of a step.

        Args:
            slots: (rows,) where each row's key and value go.
            tables: (rows, width) blocks of each row.
            lengths: (rows,) tokens that each row sees, its own included.
            block_size: tokens in a block.
            num_kv_heads: key heads.

        Returns:
            A function of q (rows, heads, head_dim), k and v (rows, kv_heads, head_dim), rows of whole heads each, the
            caches (blocks, block_size, kv_heads, head_dim) and the window (0: none); it gives
            (rows, heads, head_dim).
        """
        num_rows, table_width = tables.shape
        width = table_width * block_size
        scratch = torch.empty(self._team.size * scratch_floats(self._head_dim, width))
        scale = _bits(self._head_dim**-0.5)

        def attend(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int) -> Tensor:
            out = torch.empty(q.shape, dtype=q.dtype)
            self._run(
                self._attend, _WORTH_A_TEAM, q.data_ptr(), k.data_ptr(), v.data_ptr(), slots.data_ptr(),
                tables.data_ptr(), lengths.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(),
                scratch.data_ptr(), num_rows, *(x.stride(0) // self._head_dim for x in (q, k, v)), num_kv_heads,
                q.shape[1] // num_kv_heads, block_size, table_width, window, scale, width,
            )  # fmt: skip
            return out

        return attend

    def _run(self, kernel: int, work: int, *arguments: int) -> None:
        packed = (ctypes.c_int64 * len(arguments))(*arguments)
        if work >= _WORTH_A_TEAM:
            self._team.run(kernel, packed)
        else:
            self._team.run_alone(kernel, packed)
