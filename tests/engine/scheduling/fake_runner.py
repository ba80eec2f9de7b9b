"""A model that needs no tensors: the next token is a pure function of all tokens before it.

It keeps its own slots of "keys and values" by block id, so a sequence that reads a block which was never written, or
written for other tokens, answers wrongly and is found out.
"""

from collections.abc import Iterator
from collections.abc import Sequence as TokenIds
from functools import reduce

from engine.cache.block_pool import PADDING_BLOCK, BlockPool, HashBlock, hash_block
from engine.config import SchedulingPolicy
from engine.requests import SamplingParams
from engine.scheduling.admission import AdmissionGate
from engine.scheduling.batch import Batch, ScheduledSequence
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import Sequence

VOCAB = 50_000


def extend(digest: int, token_id: int) -> int:
    """Digest of a prefix and one token more."""
    return hash((digest, token_id))


def next_token(digest: int) -> int:
    """What the model says after the prefix of this digest."""
    return digest % VOCAB


def answer(prompt: TokenIds[int], num_tokens: int) -> list[int]:
    """The reference: one token after another, no cache, nobody else."""
    digest = reduce(extend, prompt, 0)
    new_tokens: list[int] = []
    for _ in range(num_tokens):
        new_tokens.append(next_token(digest))
        digest = extend(digest, new_tokens[-1])
    return new_tokens


class FakeRunner:
    """Computes a batch through block tables, as a real runner does."""

    def __init__(self, pool: BlockPool) -> None:
        self._block_size = pool.block_size
        # A slot holds the digest of everything up to its token: that is what keys and values depend on.
        self._slots: dict[tuple[int, int], int] = {}

    def run(self, batch: Batch) -> dict[str, int]:
        """Compute item by item: a block that is shared too early would still be unwritten."""
        return {item.sequence.request_id: token for item in batch.items if (token := self._compute(item)) is not None}

    def _compute(self, item: ScheduledSequence) -> int | None:
        """Write the item's slots, reading all before them."""
        digest = 0
        for position, token_id in enumerate(item.sequence.token_ids[: item.stop]):
            digest = extend(digest, token_id)
            slot = self._slot(item.sequence, position)
            if position >= item.start:
                self._slots[slot] = digest
            assert self._slots[slot] == digest, "the cache holds another prefix"
        return next_token(digest) if item.samples else None

    def _slot(self, sequence: Sequence, position: int) -> tuple[int, int]:
        block_id = sequence.block_table[position // self._block_size]
        assert block_id != PADDING_BLOCK
        return block_id, position % self._block_size


class FakeEngine:
    """Schedule, run, complete, finish: the loop around the scheduler, with every check after every step."""

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        max_model_len: int = 10_000,
        policy: SchedulingPolicy = SchedulingPolicy.MIXED,
        max_chunk_tokens: int | None = None,
        gate: AdmissionGate | None = None,
        prefix_caching: bool = True,
        hash_block: HashBlock = hash_block,
    ) -> None:
        self.pool = BlockPool(num_blocks, block_size, prefix_caching=prefix_caching, hash_block=hash_block)
        self.scheduler = Scheduler(
            self.pool,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            policy=policy,
            max_chunk_tokens=max_chunk_tokens,
            gate=gate,
        )
        self.runner = FakeRunner(self.pool)
        self.reasons: dict[str, str] = {}
        self.streamed: dict[str, list[int]] = {}
        self.finished: dict[str, Sequence] = {}
        self.batches: list[Batch] = []

    def add(self, request_id: str, prompt: TokenIds[int], max_tokens: int | None = None) -> Sequence:
        sequence = Sequence(request_id, list(prompt), SamplingParams(max_tokens=max_tokens, ignore_eos=True))
        self.scheduler.add(sequence)
        self.streamed[request_id] = []
        return sequence

    def step(self) -> Batch:
        batch = self.scheduler.schedule()
        self._check_batch(batch)
        for sequence in self.scheduler.complete(batch, self.runner.run(batch)):
            self.streamed[sequence.request_id].append(sequence.token_ids[-1])
            reason = self.scheduler.reached_limit(sequence)
            if reason is not None:
                self._end(sequence, reason.value)
        self.scheduler.check_integrity()
        self.batches.append(batch)
        return batch

    def cancel(self, request_id: str) -> None:
        sequence = self.scheduler.cancel(request_id)
        if sequence is not None:
            self._end(sequence, "cancelled")
        self.scheduler.check_integrity()

    def steps(self, *, limit: int) -> Iterator[Batch]:
        """Run until nothing is open; more than `limit` steps is a livelock."""
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            yield self.step()
        assert not self.scheduler.has_work, f"still busy after {limit} steps"

    def drain(self, *, limit: int = 10_000) -> None:
        for _ in self.steps(limit=limit):
            pass

    def _end(self, sequence: Sequence, reason: str) -> None:
        self.scheduler.finish(sequence)
        self.reasons[sequence.request_id] = reason
        self.finished[sequence.request_id] = sequence

    def _check_batch(self, batch: Batch) -> None:
        scheduler = self.scheduler
        assert bool(batch.items) == scheduler.has_work, "every step computes something"
        assert batch.num_tokens == sum(item.num_tokens for item in batch.items) <= scheduler.max_num_batched_tokens
        assert len({item.sequence.request_id for item in batch.items}) == len(batch.items)
        for item in batch.items:
            sequence = item.sequence
            assert sequence in scheduler.running
            assert item.start == sequence.num_computed
            assert item.num_tokens >= 1
            assert item.stop <= min(sequence.num_tokens, len(sequence.block_table) * self.pool.block_size)
            assert item.samples == (item.stop == sequence.num_tokens)
        phases = [item.phase.value for item in batch.items]
        assert phases == sorted(phases), "decodes come first"
        assert set(batch.preempted) <= set(scheduler.waiting)
