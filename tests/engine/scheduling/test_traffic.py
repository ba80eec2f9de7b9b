"""Random traffic on small engines under every policy: promises to a request, and the bounds on what is wasted.

`FakeEngine` recomputes every count after every step and every cancel.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.cache.block_pool import HashBlock
from engine.config import SchedulingPolicy
from engine.errors import PromptTooLongError
from engine.scheduling.batch import Batch
from engine.scheduling.sequence import Sequence, SequenceState
from tests.engine.cache.test_block_pool import HASHES
from tests.engine.scheduling.fake_runner import FakeEngine, answer

POLICIES = tuple(SchedulingPolicy)


class MoodyGate:
    """Open or closed as it is told."""

    def __init__(self) -> None:
        self.open = True

    def is_open(self) -> bool:
        return self.open


@dataclass
class Ledger:
    """Counts by itself what the scheduler says of preemptions and recomputes, and holds it against the bounds."""

    arrivals: list[Sequence] = field(default_factory=list)
    computed: dict[str, int] = field(default_factory=dict)  # the most tokens ever computed
    recomputed: dict[str, int] = field(default_factory=dict)
    preemptions: dict[str, int] = field(default_factory=dict)
    last_preempted: dict[str, int] = field(default_factory=dict)  # in steps with answers
    decode_steps: int = 0

    def book(self, batch: Batch, block_size: int) -> None:
        """One step, after it was computed."""
        self.decode_steps += bool(batch.decode_tokens)
        recomputed_tokens = 0
        for sequence, start, num_tokens, _samples in batch.items:
            name, stop = sequence.request_id, start + num_tokens
            again = max(min(stop, self.computed.get(name, 0)) - start, 0)
            self.recomputed[name] = self.recomputed.get(name, 0) + again
            self.computed[name] = max(self.computed.get(name, 0), stop)
            recomputed_tokens += again
        assert batch.recomputed_tokens == recomputed_tokens <= batch.prefill_tokens
        for victim in batch.preempted:
            self._book_preemption(victim.request_id, block_size)

    def _book_preemption(self, name: str, block_size: int) -> None:
        self.preemptions[name] = self.preemptions.get(name, 0) + 1
        before = self.last_preempted.get(name)
        assert before is None or self.decode_steps - before >= block_size, "thrown out again at once"
        self.last_preempted[name] = self.decode_steps

    @property
    def recomputed_tokens(self) -> int:
        return sum(self.recomputed.values())

    def check(self, block_size: int) -> None:
        """The bounds of the scheduler's docstring, for every request there was."""
        bound = 0
        for sequence in self.arrivals:
            name = sequence.request_id
            bound += sequence.num_new_tokens // block_size
            assert sequence.preemptions == self.preemptions.get(name, 0) <= bound
            assert sequence.recomputed_tokens == self.recomputed.get(name, 0)
            assert sequence.recomputed_tokens <= sequence.preemptions * (sequence.num_tokens - 1)


class Traffic:
    """An engine, everything that was asked of it, and a ledger."""

    def __init__(self, **settings: Any) -> None:
        self.gate = MoodyGate()
        self.engine = FakeEngine(gate=self.gate, **settings)
        self.ledger = Ledger()
        self.prompts: dict[str, list[int]] = {}
        self.max_tokens: dict[str, int] = {}
        self.num_steps = 0

    @property
    def limit_tokens(self) -> int:
        return self.engine.scheduler.max_length_tokens

    def add(self, prompt: list[int], max_tokens: int) -> None:
        name = f"r{len(self.prompts)}"
        if len(prompt) >= self.limit_tokens:
            with pytest.raises(PromptTooLongError):
                self.engine.add(name, prompt, max_tokens)
            return
        self.ledger.arrivals.append(self.engine.add(name, prompt, max_tokens))
        self.prompts[name] = prompt
        self.max_tokens[name] = max_tokens

    def step(self) -> None:
        scheduler = self.engine.scheduler
        if not scheduler.has_work:
            return
        oldest = (scheduler.running or scheduler.waiting)[0]
        before = oldest.num_computed
        batch = self.engine.step()
        self.ledger.book(batch, self.engine.pool.block_size)
        self.num_steps += 1
        if scheduler.policy is SchedulingPolicy.MIXED:
            assert oldest.num_computed > before or oldest.state is SequenceState.FINISHED, "the oldest gets on"

    def drain(self) -> None:
        """To the end, in no more steps than the policy allows."""
        self.gate.open = True
        # The oldest gets on in every mixed step and is never preempted, so its tokens alone bound the steps.
        bound = sum(len(prompt) + self.max_tokens[name] for name, prompt in self.prompts.items())
        while self.engine.scheduler.has_work:
            self.step()
            # Prefill-first makes it wait for others: then it is only that every step computes something.
            waste = 0 if self.engine.scheduler.policy is SchedulingPolicy.MIXED else self.ledger.recomputed_tokens
            assert self.num_steps <= bound + waste
        assert self.engine.pool.num_free == self.engine.pool.num_blocks

    def check_answers(self) -> None:
        self.ledger.check(self.engine.pool.block_size)
        for name, prompt in self.prompts.items():
            self._check_answer(name, prompt)

    def _check_answer(self, name: str, prompt: list[int]) -> None:
        streamed, reason = self.engine.streamed[name], self.engine.reasons[name]
        assert streamed == answer(prompt, len(streamed))
        assert self.engine.finished[name].new_token_ids == streamed
        if reason == "cancelled":
            return
        assert len(streamed) == min(self.max_tokens[name], self.limit_tokens - len(prompt))
        cut_by_pool = len(streamed) < self.max_tokens[name] and self.limit_tokens < self.engine.scheduler.max_model_len
        assert reason == ("capacity" if cut_by_pool else "length")


class SchedulerMachine(RuleBasedStateMachine):
    """Reports 14, 15, 23 and 25: whatever comes in whatever order, everybody is served, rightly and within bounds."""

    @initialize(
        num_blocks=st.integers(1, 14),
        block_size=st.sampled_from((1, 2, 4)),
        num_slots=st.integers(1, 5),
        extra_budget=st.integers(0, 12),
        max_model_len=st.integers(2, 40),
        policy=st.sampled_from(POLICIES),
        max_chunk_tokens=st.none() | st.integers(1, 9),
        prefix_caching=st.booleans(),
        hash_function=st.sampled_from(HASHES),
    )
    def build(
        self,
        num_blocks: int,
        block_size: int,
        num_slots: int,
        extra_budget: int,
        max_model_len: int,
        policy: SchedulingPolicy,
        max_chunk_tokens: int | None,
        prefix_caching: bool,
        hash_function: HashBlock,
    ) -> None:
        self.traffic = Traffic(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=num_slots,
            max_num_batched_tokens=num_slots + extra_budget,
            max_model_len=max_model_len,
            policy=policy,
            max_chunk_tokens=max_chunk_tokens,
            prefix_caching=prefix_caching,
            hash_block=hash_function,
        )

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=24), max_tokens=st.integers(1, 12))
    def add(self, prompt: list[int], max_tokens: int) -> None:
        self.traffic.add(prompt, max_tokens)

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.traffic.step()

    @rule(is_open=st.booleans())
    def the_gate_moves(self, is_open: bool) -> None:
        self.traffic.gate.open = is_open

    @precondition(lambda self: self.traffic.prompts)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.traffic.engine.cancel(data.draw(st.sampled_from(sorted(self.traffic.prompts))))

    def teardown(self) -> None:
        if hasattr(self, "traffic"):
            self.traffic.drain()
            self.traffic.check_answers()


SchedulerMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestSchedulerMachine = SchedulerMachine.TestCase


def random_traffic(rng: random.Random) -> Traffic:
    """An engine too small for what it will be asked."""
    num_slots = rng.randint(2, 6)
    return Traffic(
        num_blocks=rng.randint(6, 16),
        block_size=rng.choice((1, 2, 4)),
        max_num_seqs=num_slots,
        max_num_batched_tokens=num_slots + rng.randint(0, 12),
        max_model_len=rng.randint(20, 60),
        policy=rng.choice(POLICIES),
        max_chunk_tokens=rng.choice((None, 1, 3, 7)),
        prefix_caching=rng.random() < 0.8,
        hash_block=rng.choice(HASHES),
    )


def operations(rng: random.Random, count: int) -> Iterator[str]:
    return iter(rng.choices(("add", "step", "cancel", "gate"), weights=(3, 8, 1, 0.3), k=count))


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_23_and_25_random_operations_keep_counts_answers_and_bounds(count: int) -> None:
    """Reports 23 and 25: every count adds up after each of 10,000 operations, no token is lost or doubled."""
    rng = random.Random(count)
    preemptions = recomputed_tokens = done = 0
    while done < count:
        traffic = random_traffic(rng)
        for operation in operations(rng, min(100, count - done)):
            apply(traffic, operation, rng)
            done += 1
        traffic.drain()
        traffic.check_answers()
        preemptions += sum(sequence.preemptions for sequence in traffic.ledger.arrivals)
        recomputed_tokens += sum(sequence.recomputed_tokens for sequence in traffic.ledger.arrivals)
    print(f"{count:,} operations: {preemptions} preemptions, {recomputed_tokens} tokens recomputed")
    assert preemptions > 0, "small pools must have been under pressure"
    assert recomputed_tokens > 0


def apply(traffic: Traffic, operation: str, rng: random.Random) -> None:
    match operation:
        case "add":
            traffic.add([rng.randrange(2) for _ in range(rng.randint(1, 12))], rng.randint(1, 30))
        case "cancel":
            traffic.engine.cancel(f"r{rng.randrange(len(traffic.prompts) + 1)}")
        case "gate":
            traffic.gate.open = not traffic.gate.open
        case _:
            traffic.step()
