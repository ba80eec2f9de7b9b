"""Decides which tokens of which sequences the next step computes. Knows neither tensors nor text.

One rule: every sequence wants `num_computed` to catch up with its tokens. A prompt, the rest of a long prompt, a prompt
whose beginning was found in the prefix cache, an answer that grows by a token, and the recompute after a preemption
are all the same case. Continuous batching after Orca (OSDI 2022), decodes mixed with chunks of prompts after Sarathi
(OSDI 2024).

Order: running and waiting are first come, first served, and everything that runs is older than everything that waits.
Only the newest can stand in the middle of its prompt, because a prompt that was cut short left nothing for anybody
behind it; so going through the running ones in order serves the decodes first and the rest of the prompt after them.

Blocks: a sequence that finds no free block takes those of the newest (preemption by recompute); the newest itself
pauses with what it holds. The oldest always gets on, and alone it fits (`add` sees to that), so every step computes
something and no request waits for ever.

Admission must not be undone at once. A newcomer needs blocks for what it computes now, and beyond them one free block
for every sequence, itself included, that may still grow into another one; the rest of its prompt leaves the blocks of
the older ones free in the same way. Nobody then needs to preempt for the next `block_size` tokens. A sequence that was
preempted needs blocks for all of its tokens at once (and so, with its own reserve, for the next one), so it never comes
back only to be thrown out half-way; nobody is admitted in a step that preempts. An empty engine admits whatever `add`
took.
"""

from collections import OrderedDict
from collections.abc import Mapping

from engine.cache.block_pool import BlockPool, IntegrityError
from engine.errors import CacheTooSmallError, PromptTooLongError
from engine.events import FinishReason, Phase
from engine.scheduling.batch import Batch, ScheduledSequence
from engine.scheduling.sequence import Sequence, SequenceState


class _Draft:
    """A batch in the making.

    Attributes:
        budget_tokens: what is left of the step.
        reserved_blocks: free blocks that the sequences looked at may soon grow into.
        decodes, prefills, preempted: what was decided.
    """

    def __init__(self, budget_tokens: int) -> None:
        self.budget_tokens = budget_tokens
        self.reserved_blocks = 0
        self.decodes: list[ScheduledSequence] = []
        self.prefills: list[ScheduledSequence] = []
        self.preempted: list[Sequence] = []

    def grant(self, sequence: Sequence, num_tokens: int) -> None:
        """Compute this many of its tokens."""
        start = sequence.num_computed
        samples = start + num_tokens == len(sequence.token_ids)
        item = ScheduledSequence(sequence, start, num_tokens, samples)
        chosen = self.decodes if item.phase is Phase.DECODE else self.prefills
        chosen.append(item)
        self.budget_tokens -= num_tokens


class Scheduler:
    """Holds every open sequence and plans one step at a time.

    A step is `schedule`, the runner's work, `complete`, and `finish` for each sequence that has ended.

    Args:
        pool: where blocks come from; nobody else may use it.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: most tokens of one step; at least `max_num_seqs`.
        max_model_len: most tokens of one sequence, prompt and answer.
    """

    def __init__(self, pool: BlockPool, *, max_num_seqs: int, max_num_batched_tokens: int, max_model_len: int) -> None:
        assert 1 <= max_num_seqs <= max_num_batched_tokens, "every running sequence needs a token a step"
        self.pool = pool
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_model_len = max_model_len
        # Both in order of arrival, oldest first.
        self._running: OrderedDict[str, Sequence] = OrderedDict()
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
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
        draft = _Draft(self.max_num_batched_tokens)
        for sequence in self.running:
            if sequence.state is SequenceState.RUNNING:
                self._continue(sequence, draft)
        if not draft.preempted:
            self._admit_waiting(draft)
        return self._batch(draft)

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> tuple[Sequence, ...]:
        """Book a step that was computed. Sequences that ended since it was scheduled are passed over.

        Args:
            batch: what was computed.
            sampled: the new token of each item that samples, by request id.

        Returns:
            The sequences that got a token, in the order of the batch.
        """
        extended = []
        for item in batch.items:
            sequence = item.sequence
            if sequence.state is not SequenceState.RUNNING:
                continue
            sequence.num_computed = item.stop
            self._register(sequence)
            if item.samples:
                self._append(sequence, sampled[sequence.request_id], batch.step)
                extended.append(sequence)
        return tuple(extended)

    def reached_limit(self, sequence: Sequence) -> FinishReason | None:
        """LENGTH or CAPACITY when the sequence may not grow any further."""
        if sequence.num_tokens < sequence.max_length_tokens:
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

    def check_integrity(self) -> None:
        """Recompute what must hold between steps.

        Raises:
            IntegrityError: with the first thing that does not add up.
        """
        self.pool.check_integrity(sequence.block_table for sequence in self._running.values())
        if len(self._running) > self.max_num_seqs:
            raise IntegrityError(f"{len(self._running)} sequences run on {self.max_num_seqs} slots")
        for sequence in self._running.values():
            self._check_running(sequence)
        for sequence in self.running[:-1]:
            if not sequence.is_decoding:
                raise IntegrityError(f"request {sequence.request_id} is not the newest, but still in its prompt")
        for sequence in self._waiting.values():
            if sequence.state is not SequenceState.WAITING or sequence.block_table or sequence.num_computed:
                raise IntegrityError(f"request {sequence.request_id} waits, but holds blocks")

    def _continue(self, sequence: Sequence, draft: _Draft) -> None:
        """Give a running sequence its tokens of this step, as far as budget and blocks reach."""
        if sequence.is_decoding:
            wanted, reserved = 1, 0
        else:
            wanted, reserved = min(sequence.num_remaining, draft.budget_tokens), draft.reserved_blocks
        if sequence.num_computed + wanted > len(sequence.block_table) * self.pool.block_size:
            wanted = self._make_room(sequence, wanted, reserved, draft)
        if wanted:
            draft.grant(sequence, wanted)
        draft.reserved_blocks += self._may_grow(sequence, len(sequence.block_table))

    def _make_room(self, sequence: Sequence, wanted: int, reserved_blocks: int, draft: _Draft) -> int:
        """Find blocks for some of the wanted tokens, for all if possible; returns for how many."""
        room = self._room_tokens(sequence, reserved_blocks)
        while not room and self._preempt_newest_but(sequence, draft):
            room = self._room_tokens(sequence, reserved_blocks)
        granted = min(wanted, room)
        self._grow(sequence, sequence.num_computed + granted)
        return granted

    def _room_tokens(self, sequence: Sequence, reserved_blocks: int) -> int:
        """Tokens that fit into the blocks it holds and those that are free for it."""
        num_blocks = len(sequence.block_table) + max(self.pool.num_free - reserved_blocks, 0)
        return num_blocks * self.pool.block_size - sequence.num_computed

    def _grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Hold blocks for this many leading tokens."""
        missing = self.pool.blocks_for(num_tokens) - len(sequence.block_table)
        if missing > 0:
            sequence.block_table.extend(self.pool.allocate(missing))

    def _may_grow(self, sequence: Sequence, num_blocks: int) -> bool:
        """Whether its answer may need more than this many blocks; the last token of all is never computed."""
        return num_blocks * self.pool.block_size < sequence.max_length_tokens - 1

    def _preempt_newest_but(self, sequence: Sequence, draft: _Draft) -> bool:
        """Take the blocks of the newest running sequence; False when that is the one which asks."""
        victim = next(reversed(self._running.values()))
        if victim is sequence:
            return False
        self._put_back(victim)
        victim.preemptions += 1
        draft.preempted.append(victim)
        return True

    def _put_back(self, sequence: Sequence) -> None:
        """A running sequence waits again, before all others, with nothing computed."""
        del self._running[sequence.request_id]
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
        self.pool.release(sequence.block_table)
        sequence.num_computed = 0
        sequence.num_registered_blocks = 0

    def _admit_waiting(self, draft: _Draft) -> None:
        while self._waiting and len(self._running) < self.max_num_seqs and draft.budget_tokens > 0:
            sequence = next(iter(self._waiting.values()))
            if not self._admit(sequence, draft):
                return

    def _admit(self, sequence: Sequence, draft: _Draft) -> bool:
        """Start the next waiting sequence if its blocks are free."""
        grows = self._may_grow(sequence, self.pool.blocks_for(sequence.num_tokens))
        spare = self.pool.num_free - draft.reserved_blocks - grows
        if spare < 1:
            return False
        # The last token is always computed: its logits are what the next one is sampled from.
        shared = self.pool.find_prefix(sequence.token_ids, max_blocks=(sequence.num_tokens - 1) // self.pool.block_size)
        num_cached = len(shared) * self.pool.block_size
        num_tokens = min(sequence.num_tokens - num_cached, draft.budget_tokens)
        must_hold = sequence.num_tokens if sequence.admissions else num_cached + num_tokens
        needed = self.pool.blocks_for(must_hold) - len(shared) + self.pool.num_free_among(shared)
        if needed > spare:
            return False
        self._start(sequence, shared)
        self._grow(sequence, num_cached + num_tokens)
        draft.grant(sequence, num_tokens)
        draft.reserved_blocks += self._may_grow(sequence, len(sequence.block_table))
        return True

    def _start(self, sequence: Sequence, shared: list[int]) -> None:
        self.pool.share(shared)
        sequence.block_table = list(shared)
        sequence.num_computed = len(shared) * self.pool.block_size
        sequence.num_registered_blocks = len(shared)
        if not sequence.admissions:
            sequence.num_cached_tokens = sequence.num_computed
        sequence.admissions += 1
        del self._waiting[sequence.request_id]
        sequence.state = SequenceState.RUNNING
        self._running[sequence.request_id] = sequence

    def _batch(self, draft: _Draft) -> Batch:
        items = (*draft.decodes, *draft.prefills)
        assert items or not self.has_work, "a step must compute something while sequences are open"
        self._step += bool(items)
        return Batch(
            step=self._step,
            items=items,
            prefill_tokens=sum(item.num_tokens for item in draft.prefills),
            decode_tokens=len(draft.decodes),
            preempted=tuple(draft.preempted),
        )

    def _register(self, sequence: Sequence) -> None:
        """Make blocks findable that this step has filled."""
        num_full = sequence.num_computed // self.pool.block_size
        if num_full > sequence.num_registered_blocks:
            sequence.num_registered_blocks = self.pool.register(
                sequence.block_table, sequence.token_ids, start=sequence.num_registered_blocks, stop=num_full
            )

    def _append(self, sequence: Sequence, token_id: int, step: int) -> None:
        sequence.token_ids.append(token_id)
        sequence.finish_step = step
        if sequence.first_step is None:
            sequence.first_step = step

    def _check_running(self, sequence: Sequence) -> None:
        name = f"request {sequence.request_id}"
        if sequence.state is not SequenceState.RUNNING:
            raise IntegrityError(f"{name} runs, but says that it is {sequence.state.value}")
        if sequence.num_computed > len(sequence.block_table) * self.pool.block_size:
            raise IntegrityError(f"{name} has computed more tokens than its blocks hold")
        if sequence.num_computed > sequence.num_tokens:
            raise IntegrityError(f"{name} has computed more tokens than it has")
        if sequence.num_registered_blocks * self.pool.block_size > sequence.num_computed:
            raise IntegrityError(f"{name} has registered blocks that are not computed")
