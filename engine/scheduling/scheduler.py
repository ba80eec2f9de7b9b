"""Decides which tokens of which sequences the next step computes. Knows neither tensors nor text.

One rule: every sequence wants `num_computed` to catch up with its tokens. A prompt, the rest of a long prompt, a prompt
whose beginning was found in the prefix cache, an answer that grows by a token, and the recompute after a preemption
are all the same case. Continuous batching after Orca (OSDI 2022), decodes mixed with chunks of prompts after Sarathi
(OSDI 2024).

Order: running and waiting are first come, first served, and everything that runs is older than everything that waits.
The mixed policy gives every answer its token and then lets prompts share the rest of the budget, the oldest first;
with a chunk size below the budget several stand in the middle of their prompts at once. Prefill-first computes prompts
alone while there are any. It would starve answers if prompts never ended, so after `max_num_seqs` prompts one step of
answers comes in between.

Blocks: who starts gets the blocks of all its tokens at once, so only answers grow. One that finds no free block takes
those of the newest (preemption by recompute); the newest itself pauses with what it holds. The oldest always gets on,
and alone it fits (`add` sees to that), so every step computes something and no request waits for ever.

Admission must not be undone at once: beyond its own blocks a newcomer leaves one free block for every sequence, itself
included, that may still grow into another one. Nobody is admitted in a step that preempts. An empty engine admits
whatever `add` took; what the gate says counts only while others run.

How often can a sequence X be preempted? Only while it is the newest, by an older one, when no block is free; then all
that still run were running when X was last admitted. At that time there was a free block for each of them that could
grow. To use them up and ask for one more, one of them, X or an older one, must have asked twice, and between its two
questions it got `block_size` tokens of its answer. So with A(Y) for the tokens of the answer of Y

    preemptions of X  <=  sum over X and all that are older of floor(A(Y) / block_size)

and between two preemptions of X lie at least `block_size` steps with answers in them. Each costs X at most the tokens
it had computed, and less where its blocks survive as a prefix: what is computed again is at most that many times its
length. Both are counted (`Sequence.preemptions`, `Sequence.recomputed_tokens`).
"""

from collections import OrderedDict
from collections.abc import Mapping

from engine.cache.block_pool import BlockPool, IntegrityError
from engine.config import SchedulingPolicy
from engine.errors import CacheTooSmallError, PromptTooLongError
from engine.events import FinishReason, WaitReason
from engine.scheduling.admission import AdmissionGate, OpenGate
from engine.scheduling.batch import Batch, ScheduledSequence
from engine.scheduling.draft import Draft
from engine.scheduling.integrity import check_running, check_waiting
from engine.scheduling.sequence import Sequence, SequenceState


class Scheduler:
    """Holds every open sequence and plans one step at a time.

    A step is `schedule`, the runner's work, `complete`, and `finish` for each sequence that has ended.

    Args:
        pool: where blocks come from; nobody else may use it.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: most tokens of one step; at least `max_num_seqs`.
        max_model_len: most tokens of one sequence, prompt and answer.
        policy: what a step prefers.
        max_chunk_tokens: most tokens of one prompt in one step; None leaves it to the budget.
        gate: asked before a sequence starts beside others.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        policy: SchedulingPolicy = SchedulingPolicy.MIXED,
        max_chunk_tokens: int | None = None,
        gate: AdmissionGate | None = None,
    ) -> None:
        assert 1 <= max_num_seqs <= max_num_batched_tokens, "every running sequence needs a token a step"
        self.pool = pool
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_model_len = max_model_len
        self.policy = policy
        self.max_chunk_tokens = max_chunk_tokens or max_num_batched_tokens
        self._gate = gate or OpenGate()
        # All in order of arrival, oldest first. `_prompts` are those of `_running` that have tokens to catch up with.
        self._running: OrderedDict[str, Sequence] = OrderedDict()
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self._prompts: dict[str, Sequence] = {}
        self._started_since_decode = 0
        self._step = 0

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences that hold blocks, oldest first."""
        return tuple(self._running.values())

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """Sequences that wait for a slot or for blocks, next one first."""
        return tuple(self._waiting.values())

    @property
    def num_running(self) -> int:
        """How many hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether any sequence is open."""
        return bool(self._running or self._waiting)

    @property
    def max_length_tokens(self) -> int:
        """Most tokens, prompt and answer, that one sequence can ever have."""
        return min(self.max_model_len, self.pool.capacity_tokens)

    def add(self, sequence: Sequence) -> None:
        """Take a new sequence, behind all others.

        Raises:
            PromptTooLongError: the prompt leaves no room for a token of the answer, in the context or in the cache.
        """
        assert self.find(sequence.request_id) is None, f"request {sequence.request_id} is open already"
        limit_tokens = self.max_length_tokens
        if sequence.num_tokens >= limit_tokens:
            in_context = limit_tokens == self.max_model_len
            raise PromptTooLongError(
                prompt_tokens=sequence.num_tokens,
                limit_tokens=limit_tokens,
                limited_by="the context of the model" if in_context else "the whole KV cache",
            )
        self._set_limit(sequence)
        self._waiting[sequence.request_id] = sequence

    def find(self, request_id: str) -> Sequence | None:
        """The open sequence of this id."""
        return self._running.get(request_id) or self._waiting.get(request_id)

    def schedule(self) -> Batch:
        """Plan the next step and reserve its blocks; empty only when there is no work."""
        draft = Draft(self.max_num_batched_tokens)
        if self.policy is SchedulingPolicy.MIXED:
            self._add_decodes(draft)
            self._add_prompts(draft)
        else:
            self._add_prompts_or_decodes(draft)
        assert not (draft.is_empty and self.has_work), "a step must compute something while sequences are open"
        self._step += not draft.is_empty
        return draft.to_batch(self._step)

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> tuple[Sequence, ...]:
        """Book a step that was computed. Sequences that ended since it was scheduled are passed over.

        Args:
            batch: what was computed.
            sampled: the new token of each item that samples, by request id.

        Returns:
            The sequences that got a token, in the order of the batch.
        """
        extended = []
        running, step, block_size = SequenceState.RUNNING, batch.step, self.pool.block_size
        for sequence, start, num_tokens, samples in batch.items:
            if sequence.state is not running:
                continue
            stop = start + num_tokens
            sequence.num_computed = stop
            if num_tokens > 1 or not stop % block_size:
                self._register(sequence)
            if samples:
                sequence.token_ids.append(sampled[sequence.request_id])
                sequence.finish_step = step
                if sequence.first_step is None:
                    sequence.first_step = step
                extended.append(sequence)
        for request_id in [each for each, sequence in self._prompts.items() if sequence.is_decoding]:
            del self._prompts[request_id]
        return tuple(extended)

    def reached_limit(self, sequence: Sequence) -> FinishReason | None:
        """LENGTH or CAPACITY when the sequence may not grow any further."""
        if len(sequence.token_ids) < sequence.max_length_tokens:
            return None
        max_tokens = sequence.sampling.max_tokens
        by_length = sequence.num_tokens >= self.max_model_len or sequence.num_new_tokens == max_tokens
        return FinishReason.LENGTH if by_length else FinishReason.CAPACITY

    def finish(self, sequence: Sequence) -> None:
        """End a sequence in any state and give its blocks back. Ending it again changes nothing."""
        if sequence.state is SequenceState.FINISHED:
            return
        self._running.pop(sequence.request_id, None)
        self._waiting.pop(sequence.request_id, None)
        sequence.state = SequenceState.FINISHED
        self._give_blocks_back(sequence)

    def cancel(self, request_id: str) -> Sequence | None:
        """End the open sequence of this id, if there is one, and return it."""
        sequence = self.find(request_id)
        if sequence is not None:
            self.finish(sequence)
        return sequence

    def check_fits(self, num_blocks: int) -> None:
        """Whether every open sequence could go on with a pool of this many blocks.

        Raises:
            CacheTooSmallError: one of them could never have another token.
        """
        capacity_tokens = num_blocks * self.pool.block_size
        longest = max((each.num_tokens for each in (*self.running, *self.waiting)), default=0)
        if longest >= capacity_tokens:
            raise CacheTooSmallError(
                num_blocks=num_blocks,
                capacity_tokens=capacity_tokens,
                longest_tokens=longest,
                needed_blocks=self.pool.blocks_for(longest + 1),
            )

    def replace_pool(self, pool: BlockPool) -> None:
        """Go on with another pool, in which nothing is computed yet; only between two steps.

        Whatever runs waits again, before all others and in its old order, and is computed anew. Nobody was pushed
        aside for somebody else: it counts neither in `Sequence.preemptions` nor towards any bound on them.

        Raises:
            CacheTooSmallError: see `check_fits`; then nothing has changed.
        """
        self.check_fits(pool.num_blocks)
        for sequence in reversed(self.running):
            self._put_back(sequence)
        self.pool = pool
        for sequence in self.waiting:
            self._set_limit(sequence)

    def discard(self, sequence: Sequence) -> list[int]:
        """End a sequence whose keys and values are wrong; nobody may find them. Returns the blocks to be wiped."""
        block_ids = self.pool.forget(sequence.block_table)
        self.finish(sequence)
        return block_ids

    def check_integrity(self) -> None:
        """Recompute what must hold between steps.

        Raises:
            IntegrityError: with the first thing that does not add up.
        """
        check_running(self._running.values(), self._prompts, self.pool)
        check_waiting(self._waiting.values())
        if len(self._running) > self.max_num_seqs:
            raise IntegrityError(f"{len(self._running)} sequences run on {self.max_num_seqs} slots")

    def _add_prompts_or_decodes(self, draft: Draft) -> None:
        self._add_prompts(draft)
        if draft.is_empty:
            self._add_decodes(draft)
            self._started_since_decode = 0
        if draft.is_empty:  # nobody had an answer to go on with, so there is nobody to let pass
            self._add_prompts(draft)

    def _add_decodes(self, draft: Draft) -> None:
        """One token for every answer that has a block for it or finds one."""
        # This loop and that of `complete` see every running sequence in every step: names are looked up once.
        running, block_size, prompts = SequenceState.RUNNING, self.pool.block_size, self._prompts
        for sequence in self.running:
            if sequence.state is not running or sequence.request_id in prompts:
                continue
            start = sequence.num_computed
            if start < len(sequence.block_table) * block_size or self._find_block(sequence, draft):
                draft.decodes.append(ScheduledSequence(sequence, start, 1, True))
        draft.budget_tokens -= len(draft.decodes)

    def _add_prompts(self, draft: Draft) -> None:
        """Share what is left of the budget among prompts that were begun, then among those that wait."""
        for sequence in self._prompts.values():
            num_tokens = self._chunk_tokens(sequence, draft)
            if num_tokens:
                draft.prefill(sequence, num_tokens)
        while self._waiting:
            draft.waits_for = self._start_next(draft)
            if draft.waits_for is not None:
                return

    def _chunk_tokens(self, sequence: Sequence, draft: Draft) -> int:
        return min(sequence.num_remaining, self.max_chunk_tokens, draft.budget_tokens)

    def _find_block(self, sequence: Sequence, draft: Draft) -> bool:
        """A free block for the next token, from the newest if need be; False when that is the one which asks."""
        while not self.pool.num_free:
            request_id = next(reversed(self._running))
            if request_id == sequence.request_id:
                return False
            self._preempt(self._running[request_id], draft)
        sequence.block_table += self.pool.allocate(1)
        return True

    def _preempt(self, victim: Sequence, draft: Draft) -> None:
        self._put_back(victim)
        victim.preemptions += 1
        draft.preempted.append(victim)
        draft.waits_for = WaitReason.KV_BLOCKS

    def _put_back(self, sequence: Sequence) -> None:
        """A running sequence waits again, before all others, with nothing computed."""
        del self._running[sequence.request_id]
        sequence.num_lost_tokens = max(sequence.num_lost_tokens, sequence.num_computed)
        self._give_blocks_back(sequence)
        sequence.state = SequenceState.WAITING
        self._waiting[sequence.request_id] = sequence
        self._waiting.move_to_end(sequence.request_id, last=False)

    def _set_limit(self, sequence: Sequence) -> None:
        """Prompt and answer end at the request's limit, the context's or the pool's."""
        limit_tokens, max_tokens = self.max_length_tokens, sequence.sampling.max_tokens
        wanted_tokens = limit_tokens if max_tokens is None else sequence.num_prompt_tokens + max_tokens
        sequence.max_length_tokens = min(wanted_tokens, limit_tokens)

    def _give_blocks_back(self, sequence: Sequence) -> None:
        self._prompts.pop(sequence.request_id, None)
        self.pool.release(sequence.block_table)
        sequence.num_computed = 0
        sequence.num_registered_blocks = 0

    def _start_next(self, draft: Draft) -> WaitReason | None:
        """Start the next waiting sequence, or say what keeps it from starting."""
        if len(self._running) >= self.max_num_seqs:
            return WaitReason.SLOTS
        if draft.budget_tokens < 1 or self._must_let_answers_pass():
            return WaitReason.TOKEN_BUDGET
        if draft.preempted:
            return WaitReason.KV_BLOCKS
        if self._running and not self._gate.is_open():
            return WaitReason.SYSTEM_MEMORY
        sequence = next(iter(self._waiting.values()))
        if not self._start(sequence, draft):
            return WaitReason.KV_BLOCKS
        draft.prefill(sequence, self._chunk_tokens(sequence, draft))
        return None

    def _must_let_answers_pass(self) -> bool:
        return self.policy is SchedulingPolicy.PREFILL_FIRST and self._started_since_decode >= self.max_num_seqs

    def _start(self, sequence: Sequence, draft: Draft) -> bool:
        """Give a waiting sequence the blocks of all its tokens if they, and the reserve, are free."""
        pool = self.pool
        num_blocks = pool.blocks_for(sequence.num_tokens)
        if draft.reserved_blocks is None:
            draft.reserved_blocks = self._num_growing()
        may_grow = self._may_grow(sequence, num_blocks)
        spare = pool.num_free - draft.reserved_blocks - may_grow
        if spare < 1:
            return False
        # The last token is always computed: its logits are what the next one is sampled from.
        shared = pool.find_prefix(sequence.token_ids, max_blocks=(sequence.num_tokens - 1) // pool.block_size)
        missing = num_blocks - len(shared)
        if missing + pool.num_free_among(shared) > spare:
            return False
        pool.share(shared)
        sequence.block_table = shared + pool.allocate(missing)
        draft.reserved_blocks += may_grow
        self._enter(sequence, num_cached_blocks=len(shared))
        return True

    def _enter(self, sequence: Sequence, *, num_cached_blocks: int) -> None:
        request_id = sequence.request_id
        sequence.num_registered_blocks = num_cached_blocks
        sequence.num_computed = num_cached_blocks * self.pool.block_size
        if not sequence.admissions:
            sequence.num_cached_tokens = sequence.num_computed
        sequence.admissions += 1
        sequence.state = SequenceState.RUNNING
        del self._waiting[request_id]
        self._running[request_id] = self._prompts[request_id] = sequence
        self._started_since_decode += 1

    def _num_growing(self) -> int:
        """How many of the running sequences may ask for another block."""
        return sum(self._may_grow(sequence, len(sequence.block_table)) for sequence in self._running.values())

    def _may_grow(self, sequence: Sequence, num_blocks: int) -> bool:
        """Whether its answer may need more than this many blocks; the last token of all is never computed."""
        return num_blocks * self.pool.block_size < sequence.max_length_tokens - 1

    def _register(self, sequence: Sequence) -> None:
        """Make blocks findable that this step has filled."""
        num_full = sequence.num_computed // self.pool.block_size
        if num_full > sequence.num_registered_blocks:
            sequence.num_registered_blocks = self.pool.register(
                sequence.block_table, sequence.token_ids, start=sequence.num_registered_blocks, stop=num_full
            )
