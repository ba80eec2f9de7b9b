"""Turns a scheduled batch into tensors, runs the decoder, samples. It owns the tensors of a step and nothing else."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.backend import AttentionBackend, AttentionInputs, PrefillChunk
from engine.cache.kv_cache import KVCache
from engine.events import Phase
from engine.model.decoder import Decoder
from engine.runner.cuda_graphs import DecodeGraphs
from engine.runner.sampler import NOT_FINITE, Sampled, Sampler
from engine.scheduling.batch import Batch, ScheduledSequence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """The new tokens of the requests that caught up with their tokens, who failed, and what the parts cost."""

    sampled: Sampled
    forward_ms: float
    sample_ms: float


class ModelRunner:
    """Runs batches on one decoder and one cache."""

    def __init__(
        self, decoder: Decoder, cache: KVCache, backend: AttentionBackend, device: torch.device, *,
        make_graphs: Callable[[], DecodeGraphs] | None = None,
    ) -> None:  # fmt: skip
        """`make_graphs` captures decode steps over the cache as it then is; None where there is nothing to capture."""
        self._decoder = decoder
        self._cache = cache
        self._backend = backend
        self._device = device
        self._sampler = Sampler()
        self._make_graphs = make_graphs
        self._graphs = self._captured()

    def run(self, batch: Batch) -> RunResult:
        """Compute K and V of every scheduled token and sample where a sequence has caught up."""
        started = time.perf_counter()
        with torch.inference_mode():  # per thread: the one that runs the step has to enter it
            forward = self._decode(batch) or self._forward(batch)
            computed = time.perf_counter()
            sampled = self._sampler.sample(forward.logits, [item.sequence for item in forward.sampling])
            sampled.failed.update(_broken(batch, forward.finite))
        return RunResult(sampled, 1e3 * (computed - started), 1e3 * (time.perf_counter() - computed))

    def resize_cache(self, num_blocks: int) -> None:
        """Go on with an empty cache of this many usable blocks.

        Raises:
            CacheAllocationError: there is no memory for it; then the cache is empty, of its old size.
        """
        self._graphs = None  # they point into the old one
        try:
            self._cache.resize(num_blocks + 1)
        finally:
            self._graphs = self._captured()

    def wipe(self, block_ids: list[int]) -> None:
        """Zero blocks whose keys and values are wrong."""
        with torch.inference_mode():
            self._cache.wipe(block_ids)

    def _captured(self) -> DecodeGraphs | None:
        if self._make_graphs is None:
            return None
        try:
            with torch.inference_mode():
                return self._make_graphs()
        except torch.OutOfMemoryError:
            log.warning("decode steps run without CUDA graphs: there is no memory left for them")
            return None

    def _decode(self, batch: Batch) -> "_Forward | None":
        """A step of decode rows alone, replayed; None where it has to be computed eagerly."""
        if self._graphs is None or batch.prefill_tokens or not 0 < len(batch.items) <= self._graphs.max_rows:
            return None
        output = self._graphs.run(batch.items)
        return _Forward(output.logits, list(batch.items), output.finite)

    def _forward(self, batch: Batch) -> "_Forward":
        inputs = BatchInputs.of(batch, self._cache.block_size, self._device)
        attend = self._backend.prepare(inputs.attention, self._cache)
        hidden = self._decoder.forward(inputs.token_ids, inputs.positions, attend)
        logits = self._decoder.logits(hidden.index_select(0, inputs.last_rows)) if inputs.sampling else hidden[:0]
        return _Forward(logits, inputs.sampling, hidden.isfinite())


@dataclass(frozen=True, slots=True)
class _Forward:
    """Logits of the rows that sample, which those are, and what is finite: (tokens, ...)."""

    logits: Tensor
    sampling: list[ScheduledSequence]
    finite: Tensor


@dataclass(frozen=True, slots=True)
class BatchInputs:
    """A batch as tensors: token_ids and positions (tokens,), last_rows (sampling sequences,)."""

    token_ids: Tensor
    positions: Tensor
    last_rows: Tensor
    sampling: list[ScheduledSequence]
    attention: AttentionInputs

    @classmethod
    def of(cls, batch: Batch, block_size: int, device: torch.device) -> "BatchInputs":
        """Pack the rows in the order of the batch: decode first, then chunks."""
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        last_rows: list[int] = []
        chunks: list[PrefillChunk] = []
        for item in batch.items:
            first_row, end = len(token_ids), item.stop
            table = item.sequence.block_table
            token_ids += item.sequence.token_ids[item.start : end]
            positions += range(item.start, end)
            slots += (table[at // block_size] * block_size + at % block_size for at in range(item.start, end))
            if item.samples:
                last_rows.append(len(token_ids) - 1)
            if item.phase is Phase.PREFILL:
                blocks = torch.tensor(table[: -(-end // block_size)], device=device)
                chunks.append(PrefillChunk(first_row, item.num_tokens, item.start, blocks))
        tables, lengths = _decode_tables([item for item in batch.items if item.phase is Phase.DECODE], block_size)
        return cls(
            token_ids=torch.tensor(token_ids, device=device),
            positions=torch.tensor(positions, device=device),
            last_rows=torch.tensor(last_rows, dtype=torch.int64, device=device),
            sampling=[item for item in batch.items if item.samples],
            attention=AttentionInputs(
                slots=torch.tensor(slots, device=device),
                num_decode=len(lengths),
                decode_block_tables=torch.tensor(tables, dtype=torch.int64, device=device),
                decode_lengths=torch.tensor(lengths, dtype=torch.int64, device=device),
                chunks=tuple(chunks),
            ),
        )


def _decode_tables(items: list[ScheduledSequence], block_size: int) -> tuple[list[list[int]], list[int]]:
    """Block tables padded with block 0 to the widest, and the tokens each row sees."""
    lengths = [item.start + 1 for item in items]
    width = max((-(-length // block_size) for length in lengths), default=0)
    tables = []
    for item, length in zip(items, lengths, strict=True):
        blocks = item.sequence.block_table[: -(-length // block_size)]
        tables.append(blocks + [0] * (width - len(blocks)))
    return tables, lengths


def _broken(batch: Batch, finite: Tensor) -> dict[str, str]:
    """Requests with a token that is not finite, whether or not they sample; a window may hide it from the last one."""
    if finite.all():
        return {}
    parts = finite.split([item.num_tokens for item in batch.items])
    return {
        item.sequence.request_id: NOT_FINITE for item, part in zip(batch.items, parts, strict=True) if not part.all()
    }
