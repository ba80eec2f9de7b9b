"""Policies, chunks, slots and the gate: who computes what, and who waits for what."""

import random

import pytest

from engine.config import SchedulingPolicy
from engine.events import Phase, WaitReason
from engine.scheduling.batch import Batch
from tests.engine.scheduling.fake_runner import FakeEngine, answer
from tests.engine.scheduling.test_scheduler import distinct_prompt, phases
from tests.engine.scheduling.test_traffic import MoodyGate

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
MIXED, PREFILL_FIRST = SchedulingPolicy.MIXED, SchedulingPolicy.PREFILL_FIRST


class TestChunks:
    def test_a_chunk_is_no_larger_than_asked_and_others_share_the_step(self) -> None:
        engine = FakeEngine(num_blocks=100, max_num_batched_tokens=16, max_chunk_tokens=5)
        for name, length in (("a", 12), ("b", 7), ("c", 4)):
            engine.add(name, distinct_prompt(ord(name), length), 9)
        assert phases(engine.step()) == [("a", PREFILL, 5), ("b", PREFILL, 5), ("c", PREFILL, 4)]
        assert phases(engine.step()) == [("c", DECODE, 1), ("a", PREFILL, 5), ("b", PREFILL, 2)]
        assert phases(engine.step()) == [("b", DECODE, 1), ("c", DECODE, 1), ("a", PREFILL, 2)]

    def test_the_oldest_prompt_gets_on_when_the_budget_is_short(self) -> None:
        engine = FakeEngine(num_blocks=100, max_num_seqs=4, max_num_batched_tokens=4, max_chunk_tokens=2)
        for name in "abcd":
            engine.add(name, distinct_prompt(ord(name), 9), 4)
        while engine.scheduler.has_work:
            batch = engine.step()
            prompts = [name for name, phase, _ in phases(batch) if phase is PREFILL]
            assert prompts == sorted(prompts)
        assert all(engine.streamed[name] == answer(distinct_prompt(ord(name), 9), 4) for name in "abcd")

    @pytest.mark.parametrize("policy", SchedulingPolicy)
    @pytest.mark.parametrize("chunk", [1, 3, 16, 17, 1000])
    def test_31_every_chunk_size_gives_the_same_answers(self, policy: SchedulingPolicy, chunk: int) -> None:
        """Report 31: chunks of one token beside decodes are prefill, whatever the policy."""
        engine = FakeEngine(
            num_blocks=60, max_num_seqs=4, max_num_batched_tokens=20, max_chunk_tokens=chunk, policy=policy
        )
        prompts = {f"r{length}": distinct_prompt(length, length) for length in (1, 2, 15, 16, 17, 33)}
        for name, prompt in prompts.items():
            engine.add(name, prompt, 6)
        engine.drain()
        assert all(engine.streamed[name] == answer(prompt, 6) for name, prompt in prompts.items())
        for batch in engine.batches:
            for item in batch.items:
                before = item.sequence.num_prompt_tokens
                assert (item.phase is PREFILL) == (item.start < before), "nothing was preempted here"
                assert item.num_tokens <= chunk

    def test_blocks_of_a_whole_prompt_are_there_before_its_first_chunk(self) -> None:
        """Or it would be thrown out half-way."""
        engine = FakeEngine(num_blocks=12, max_num_batched_tokens=8, max_chunk_tokens=4)
        engine.add("a", distinct_prompt(1, 20), 4)
        engine.add("b", distinct_prompt(2, 24), 4)
        engine.step()
        assert [owner.request_id for owner in engine.scheduler.running] == ["a"], (
            "5 + 1 + 6 + 1 blocks are more than 12"
        )
        assert engine.pool.num_used == 5
        engine.drain()
        assert not any(batch.preempted for batch in engine.batches)


class TestPrefillFirst:
    def run(self, policy: SchedulingPolicy) -> list[Batch]:
        engine = FakeEngine(num_blocks=100, max_num_seqs=4, max_num_batched_tokens=12, policy=policy)
        engine.add("a", distinct_prompt(1, 4), 6)
        engine.step()
        for name in "bcd":
            engine.add(name, distinct_prompt(ord(name), 10), 6)
        engine.drain()
        for name, length, seed in (("a", 4, 1), ("b", 10, ord("b")), ("d", 10, ord("d"))):
            assert engine.streamed[name] == answer(distinct_prompt(seed, length), 6)
        return engine.batches

    def test_prompts_go_alone(self) -> None:
        batches = self.run(PREFILL_FIRST)
        assert all(bool(batch.prefill_tokens) != bool(batch.decode_tokens) for batch in batches)
        assert [batch.prefill_tokens for batch in batches[:4]] == [4, 12, 12, 6]
        assert not any(batch.prefill_tokens for batch in batches[4:])

    def test_mixed_gives_every_answer_its_token_meanwhile(self) -> None:
        batches = self.run(MIXED)
        assert all(batch.decode_tokens for batch in batches[1:])
        assert any(batch.prefill_tokens for batch in batches[1:])

    @pytest.mark.parametrize("num_slots", [2, 3, 5])
    def test_answers_are_never_starved_by_prompts_that_never_end(self, num_slots: int) -> None:
        """Answers of one token give their slot back at once, and the next prompt would take it for ever."""
        engine = FakeEngine(
            num_blocks=100, max_num_seqs=num_slots, max_num_batched_tokens=8, policy=PREFILL_FIRST
        )  # fmt: skip
        engine.add("long", distinct_prompt(1, 4), 10)
        names = iter(range(1_000))
        steps = since = 0
        while "long" not in engine.reasons:
            while engine.scheduler.num_waiting < 5:
                engine.add(f"short-{next(names)}", distinct_prompt(7, 3), 1)
            batch = engine.step()
            started = sum(not item.start for item in batch.items if item.phase is PREFILL)
            since = 0 if batch.decode_tokens else since + started
            assert since <= num_slots, "prompts between two tokens of an answer"
            steps += 1
        assert steps <= 10 * (num_slots + 1)
        engine.drain()

    def test_prompts_that_were_let_pass_do_not_stop_where_nobody_answers(self) -> None:
        engine = FakeEngine(num_blocks=20, max_num_seqs=2, max_num_batched_tokens=4, policy=PREFILL_FIRST)
        for index in range(9):
            engine.add(f"r{index}", distinct_prompt(index, 4), 1)
        engine.drain(limit=9)
        assert set(engine.reasons.values()) == {"length"}


class TestWhatOneWaitsFor:
    def waits_for(self, engine: FakeEngine) -> WaitReason | None:
        return engine.step().waits_for

    def test_nobody_waits_for_nothing(self) -> None:
        engine = FakeEngine(num_blocks=8)
        engine.add("a", [1, 2], 3)
        assert self.waits_for(engine) is None

    def test_a_slot(self) -> None:
        engine = FakeEngine(num_blocks=8, max_num_seqs=1)
        for name in "ab":
            engine.add(name, [1, 2], 3)
        assert self.waits_for(engine) is WaitReason.SLOTS

    def test_tokens_of_the_step(self) -> None:
        engine = FakeEngine(num_blocks=8, max_num_batched_tokens=8)
        for name in "ab":
            engine.add(name, distinct_prompt(1, 9), 3)
        assert self.waits_for(engine) is WaitReason.TOKEN_BUDGET

    def test_blocks(self) -> None:
        engine = FakeEngine(num_blocks=8)
        for name in "ab":
            engine.add(name, distinct_prompt(ord(name), 20), 3)
        assert self.waits_for(engine) is WaitReason.KV_BLOCKS

    @pytest.mark.parametrize("policy", SchedulingPolicy)
    def test_blocks_that_an_older_one_took(self, policy: SchedulingPolicy) -> None:
        engine = FakeEngine(num_blocks=6, policy=policy)
        for name in "abc":
            engine.add(name, distinct_prompt(ord(name), 3), 12)
        batch = next(batch for batch in engine.steps(limit=100) if batch.preempted)
        assert batch.waits_for is WaitReason.KV_BLOCKS
        engine.drain()


class TestGate:
    def test_a_closed_gate_keeps_newcomers_out_and_the_others_going(self) -> None:
        gate = MoodyGate()
        engine = FakeEngine(num_blocks=20, gate=gate)
        engine.add("a", [1, 2, 3], 10)
        engine.step()
        gate.open = False
        engine.add("b", [4, 5, 6], 5)
        for _ in range(3):
            batch = engine.step()
            assert phases(batch) == [("a", DECODE, 1)]
            assert batch.waits_for is WaitReason.SYSTEM_MEMORY
        gate.open = True
        assert phases(engine.step()) == [("a", DECODE, 1), ("b", PREFILL, 3)]
        engine.drain()

    @pytest.mark.parametrize("policy", SchedulingPolicy)
    def test_a_gate_that_never_opens_is_no_deadlock(self, policy: SchedulingPolicy) -> None:
        gate = MoodyGate()
        gate.open = False
        engine = FakeEngine(num_blocks=20, gate=gate, policy=policy)
        for name in "abc":
            engine.add(name, distinct_prompt(ord(name), 5), 4)
        engine.drain(limit=12)
        assert max(len(batch.items) for batch in engine.batches) == 1, "one after another"
        assert all(engine.streamed[name] == answer(distinct_prompt(ord(name), 5), 4) for name in "abc")

    def test_a_preempted_one_waits_at_the_gate_too(self) -> None:
        gate = MoodyGate()
        engine = FakeEngine(num_blocks=6, gate=gate)
        for name in "abc":
            engine.add(name, distinct_prompt(ord(name), 3), 12)
        while not engine.step().preempted:
            pass
        gate.open = False
        running = set(engine.scheduler.running)
        while engine.scheduler.num_running > 0 and running & set(engine.scheduler.running):
            assert set(engine.scheduler.running) <= running
            engine.step()
        engine.drain(limit=100)
        assert all(engine.streamed[name] == answer(distinct_prompt(ord(name), 3), 12) for name in "abc")

    def test_the_gate_is_asked_only_where_somebody_could_start(self) -> None:
        class Counting:
            count = 0

            def is_open(self) -> bool:
                self.count += 1
                return True

        gate = Counting()
        engine = FakeEngine(num_blocks=20, max_num_seqs=2, gate=gate)
        for name in "abc":
            engine.add(name, [1, 2], 6)
        engine.drain()
        assert gate.count == 1, "a starts in an empty engine, c too; b beside a"


class TestRecompute:
    def test_what_is_computed_again_is_counted(self) -> None:
        engine = FakeEngine(num_blocks=10, prefix_caching=False)
        engine.add("old", distinct_prompt(1, 16), 20)
        engine.add("new", distinct_prompt(2, 16), 20)
        lost = 0
        for batch in engine.steps(limit=200):
            lost += sum(victim.num_lost_tokens for victim in batch.preempted)
        assert lost > 16
        assert sum(batch.recomputed_tokens for batch in engine.batches) == lost
        assert engine.finished["new"].recomputed_tokens == lost
        assert engine.finished["old"].recomputed_tokens == 0

    def test_what_survives_as_a_prefix_is_not_computed_again(self) -> None:
        engine = FakeEngine(num_blocks=10)
        engine.add("old", distinct_prompt(1, 16), 20)
        engine.add("new", distinct_prompt(2, 16), 20)
        engine.drain()
        sequence = engine.finished["new"]
        assert 0 < sequence.recomputed_tokens < sequence.preemptions * sequence.num_lost_tokens

    def test_a_prompt_thrown_out_half_way_counts_only_its_half(self) -> None:
        rng = random.Random(3)
        engine = FakeEngine(num_blocks=9, max_num_seqs=3, max_num_batched_tokens=3, prefix_caching=False)
        engine.add("old", [rng.randrange(99) for _ in range(3)], 24)
        engine.add("new", [rng.randrange(99) for _ in range(26)], 2)
        engine.drain()
        sequence = engine.finished["new"]
        assert sequence.preemptions == 1
        assert 0 < sequence.recomputed_tokens == sequence.num_lost_tokens < sequence.num_prompt_tokens
        assert engine.streamed["new"] == answer(sequence.token_ids[:26], 2)
