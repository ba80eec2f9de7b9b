"""Turns a scheduled batch into tensors, runs the decoder, samples. It owns the tensors of a step and nothing else."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.backend import AttentionBackend, AttentionInputs, PrefillChunk
from engine.cache.kv_cache import KVCache
from engine.events import Phase
from engine.model.decoder import Decoder
from engine.runner.sampler import NOT_FINITE, Sampled, Sampler
from engine.scheduling.batch import Batch, ScheduledSequence


@dataclass(frozen=True, slots=True)
class RunResult:
    """The new tokens of the requests that caught up with their tokens, who failed, and what the parts cost."""

    sampled: Sampled
    forward_ms: float
    sample_ms: float


class ModelRunner:
    """Runs batches on one decoder and one cache."""

    def __init__(self, decoder: Decoder, cache: KVCache, backend: AttentionBackend, device: torch.device) -> None:
        self._decoder = decoder
        self._cache = cache
        self._backend = backend
        self._device = device
        self._sampler = Sampler()

    def run(self, batch: Batch) -> RunResult:
        """Compute K and V of every scheduled token and sample where a sequence has caught up."""
        started = time.perf_counter()
        with torch.inference_mode():  # per thread: the one that runs the step has to enter it
            inputs = BatchInputs.of(batch, self._cache.block_size, self._device)
            hidden = self._hidden(inputs)
            logits = self._decoder.logits(hidden.index_select(0, inputs.last_rows)) if inputs.sampling else hidden[:0]
            computed = time.perf_counter()
            sampled = self._sampler.sample(logits, [item.sequence for item in inputs.sampling])
            sampled.failed.update(_broken(batch, hidden))
        return RunResult(sampled, 1e3 * (computed - started), 1e3 * (time.perf_counter() - computed))

    def resize_cache(self, num_blocks: int) -> None:
        """Go on with an empty cache of this many usable blocks.

        Raises:
            CacheAllocationError: there is no memory for it; then the cache is empty, of its old size.
        """
        self._cache.resize(num_blocks + 1)

    def wipe(self, block_ids: list[int]) -> None:
        """Zero blocks whose keys and values are wrong."""
        with torch.inference_mode():
            self._cache.wipe(block_ids)

    def _hidden(self, inputs: "BatchInputs") -> Tensor:
        """Hidden states of every scheduled token; their K and V are in the cache afterwards."""
        attend = self._backend.prepare(inputs.attention, self._cache)
        return self._decoder.forward(inputs.token_ids, inputs.positions, attend)


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


def _broken(batch: Batch, hidden: Tensor) -> dict[str, str]:
    """Requests with a token that is not finite, whether or not they sample; a window may hide it from the last one."""
    finite = hidden.isfinite()
    if finite.all():
        return {}
    parts = finite.all(dim=1).split([item.num_tokens for item in batch.items])
    return {
        item.sequence.request_id: NOT_FINITE for item, part in zip(batch.items, parts, strict=True) if not part.all()
    }
