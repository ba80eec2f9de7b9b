"""Decode steps as CUDA graphs: one launch from the host where an eager step makes hundreds.

A ladder of sizes is captured, largest first, in one memory pool. A step takes the smallest size that holds its rows;
rows left over write to block 0 and are thrown away. What a graph reads never moves: a step fills the same tensors.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.backend import AttentionBackend, AttentionInputs
from engine.cache.kv_cache import KVCache
from engine.model.decoder import Decoder
from engine.scheduling.batch import ScheduledSequence

_WARM_UP_RUNS = 2  # kernels are compiled and libraries take their workspaces before anything is captured


@dataclass(frozen=True, slots=True)
class DecodeOutput:
    """Logits (rows, vocab), and whether each row's hidden state is finite (rows,)."""

    logits: Tensor
    finite: Tensor


Replay = Callable[[], DecodeOutput]
"""Computes the same again, into the same tensors."""

Capture = Callable[[Replay], Replay]
"""Records what a function launches."""


class CudaCapture:
    """Captures into one memory pool: replays must not overlap, and each overwrites what the last one left."""

    def __init__(self, device: torch.device) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def __call__(self, compute: Replay) -> Replay:
        """See Capture. Other threads may use the card meanwhile."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP_RUNS):
                compute()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            output = compute()

        def replay() -> DecodeOutput:
            graph.replay()
            return output

        return replay


def ladder(max_rows: int) -> tuple[int, ...]:
    """Sizes up to max_rows: powers of two to 8, then steps of 8 to 64, of 16 to 256, of 64 beyond; max_rows last."""
    steps = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, max_rows, 64)]
    return (*itertools.takewhile(lambda size: size < max_rows, steps), max_rows)


class StepTensors:
    """What a decode step reads, at addresses that never change, filled by one copy from the host."""

    def __init__(self, max_rows: int, max_blocks: int, block_size: int, device: torch.device) -> None:
        self._max_rows, self._block_size = max_rows, block_size
        # Four numbers of each row, then as much of the block tables as the step needs, side by side.
        count = max_rows * (4 + max_blocks)
        self._host = torch.zeros(count, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._numbers = self._host.numpy()
        self._device = torch.zeros(count, dtype=torch.int64, device=device)
        self._tables = torch.zeros(max_rows, max_blocks, dtype=torch.int64, device=device)
        self.fill([], max_rows)

    def fill(self, items: Sequence[ScheduledSequence], size: int) -> None:
        """One token of each sequence, then padding: token 0 at position 0, which is written to block 0.

        The last step must have ended: the copy reads the host's numbers later.
        """
        rows, starts = len(items), [item.start for item in items]
        width = max(starts, default=0) // self._block_size + 1
        head, tail = 4 * self._max_rows, 4 * self._max_rows + size * width
        token_ids, positions, slots, lengths = self._numbers[:head].reshape(4, self._max_rows)
        tables = self._numbers[head:tail].reshape(size, width)
        for each in (token_ids, positions, slots):
            each[rows:size] = 0
        tables[:] = 0
        lengths[rows:size] = 1
        token_ids[:rows] = [item.sequence.token_ids[item.start] for item in items]
        positions[:rows] = starts
        for row, item in enumerate(items):
            blocks = item.sequence.block_table[: item.start // self._block_size + 1]
            tables[row, : len(blocks)] = blocks
            slots[row] = blocks[-1] * self._block_size + item.start % self._block_size
        lengths[:rows] = positions[:rows] + 1
        self._device[:tail].copy_(self._host[:tail], non_blocking=True)
        self._tables[:size, :width].copy_(self._device[head:tail].view(size, width))

    def token_ids(self, size: int) -> Tensor:
        """Ids of the tokens to compute: (size,)."""
        return self._column(0, size)

    def positions(self, size: int) -> Tensor:
        """Where they stand in their sequences: (size,)."""
        return self._column(1, size)

    def attention(self, size: int) -> AttentionInputs:
        """Decode rows alone, with tables for the longest context."""
        return AttentionInputs(
            slots=self._column(2, size), num_decode=size, decode_block_tables=self._tables[:size],
            decode_lengths=self._column(3, size), chunks=(),
        )  # fmt: skip

    def _column(self, index: int, size: int) -> Tensor:
        return self._device[index * self._max_rows :][:size]


class DecodeGraphs:
    """The decode step of one model and cache, captured for every size of the ladder."""

    def __init__(
        self, decoder: Decoder, backend: AttentionBackend, cache: KVCache, *, max_rows: int, max_tokens: int,
        device: torch.device, capture: Capture,
    ) -> None:  # fmt: skip
        """`max_tokens` is the longest context; capturing it takes a second or two."""
        self._decoder, self._backend, self._cache = decoder, backend, cache
        self._sizes = ladder(max_rows)
        self._tensors = StepTensors(max_rows, -(-max_tokens // cache.block_size), cache.block_size, device)
        self._replays = {size: capture(self._step(size)) for size in reversed(self._sizes)}

    @property
    def max_rows(self) -> int:
        """The most rows of a step."""
        return self._sizes[-1]

    def run(self, items: Sequence[ScheduledSequence]) -> DecodeOutput:
        """Compute one token of each; what comes back is overwritten by the next run."""
        size = self._sizes[bisect.bisect_left(self._sizes, len(items))]
        self._tensors.fill(items, size)
        output = self._replays[size]()
        return DecodeOutput(output.logits[: len(items)], output.finite[: len(items)])

    def _step(self, size: int) -> Replay:
        tensors = self._tensors

        def compute() -> DecodeOutput:
            attend = self._backend.prepare(tensors.attention(size), self._cache)
            hidden = self._decoder.forward(tensors.token_ids(size), tensors.positions(size), attend)
            return DecodeOutput(self._decoder.logits(hidden), hidden.isfinite().all(dim=1))

        return compute
