"""The scheduler with a model that is a pure function of the prefix: examples and reports."""

import math
import random
from collections.abc import Iterable

import pytest

from engine.cache.block_pool import HashBlock, IntegrityError
from engine.config import SchedulingPolicy
from engine.errors import PromptTooLongError
from engine.events import FinishReason, Phase
from engine.scheduling.batch import Batch
from engine.scheduling.sequence import SequenceState
from tests.engine.cache.test_block_pool import constant_hash, low_byte_hash
from tests.engine.scheduling.fake_runner import FakeEngine, answer


def capped_exponential(count: int, *, mean: float, cap: int, rng: random.Random) -> list[int]:
    """Answer lengths of a classroom: exponential, redrawn outside 1 to `cap`."""
    draws = iter(lambda: round(rng.expovariate(1 / mean)), None)
    kept = (draw for draw in draws if 1 <= draw <= cap)
    return [next(kept) for _ in range(count)]


def steps_of_refilled_slots(lengths: Iterable[int], num_slots: int) -> int:
    """Steps when each request takes the slot that is free first, at once, and occupies it for its length."""
    free_at = [0] * num_slots
    for length in lengths:
        slot = free_at.index(min(free_at))
        free_at[slot] += length
    return max(free_at)


def steps_of_static_groups(lengths: list[int], num_slots: int) -> int:
    """Steps when a group of requests ends with its longest."""
    return sum(max(lengths[start : start + num_slots]) for start in range(0, len(lengths), num_slots))


def distinct_prompt(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1_000) for _ in range(length)]


def phases(batch: Batch) -> list[tuple[str, Phase, int]]:
    return [(item.sequence.request_id, item.phase, item.num_tokens) for item in batch.items]


class TestContinuousBatching:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    @pytest.mark.parametrize("num_slots", [2, 8])
    def test_a_finished_slot_is_refilled_in_the_next_step(self, seed: int, num_slots: int) -> None:
        lengths = capped_exponential(40, mean=24, cap=64, rng=random.Random(seed))
        engine = FakeEngine(num_blocks=200, block_size=16, max_num_seqs=num_slots, max_num_batched_tokens=2_048)
        for index, length in enumerate(lengths):
            engine.add(f"r{index}", distinct_prompt(index, 20), length)
        engine.drain()
        assert len(engine.batches) == steps_of_refilled_slots(lengths, num_slots)
        for index, length in enumerate(lengths):
            sequence = engine.finished[f"r{index}"]
            assert sequence.first_step is not None
            assert sequence.finish_step is not None
            assert sequence.finish_step - sequence.first_step + 1 == length

    def test_forty_requests_on_eight_slots_take_160_steps(self) -> None:
        lengths = capped_exponential(40, mean=24, cap=64, rng=random.Random(0))
        assert sum(lengths) == 1_060
        assert steps_of_static_groups(lengths, 8) == 268
        engine = FakeEngine(num_blocks=200, block_size=16, max_num_seqs=8, max_num_batched_tokens=2_048)
        for index, length in enumerate(lengths):
            engine.add(f"r{index}", distinct_prompt(index, 20), length)
        engine.drain()
        assert len(engine.batches) == 160
        assert any(batch.prefill_tokens and batch.decode_tokens for batch in engine.batches)
        assert sum(batch.decode_tokens for batch in engine.batches) == 1_060 - 40

    def test_the_original_experiment(self) -> None:
        """Ten requests, 760 prompt tokens, 222 usable blocks of 256 tokens."""
        engine = FakeEngine(num_blocks=222, block_size=256, max_num_seqs=16, max_num_batched_tokens=1_024)
        limits = [5, 8, 12, 16, 24, 32, 40, 48, 56, 64]
        for index, limit in enumerate(limits):
            engine.add(f"r{index}", distinct_prompt(index, 76), limit)
        free_blocks = []
        for _batch in engine.steps(limit=64):
            free_blocks.append(engine.pool.num_free)
        assert [batch.prefill_tokens for batch in engine.batches] == [760] + [0] * 63
        assert free_blocks[0] == 212
        assert free_blocks[-1] == 222
        assert free_blocks == sorted(free_blocks)
        assert sorted(sequence.finish_step or 0 for sequence in engine.finished.values()) == limits
        assert not any(batch.preempted for batch in engine.batches)

    def test_decodes_come_first_and_prompts_share_the_rest_of_the_budget(self) -> None:
        engine = FakeEngine(num_blocks=100, max_num_batched_tokens=8)
        engine.add("a", distinct_prompt(1, 3), 20)
        engine.step()
        engine.add("b", distinct_prompt(2, 12), 20)
        engine.add("c", distinct_prompt(3, 5), 20)
        decode, prefill = Phase.DECODE, Phase.PREFILL
        assert phases(engine.step()) == [("a", decode, 1), ("b", prefill, 7)]
        assert phases(engine.step()) == [("a", decode, 1), ("b", prefill, 5), ("c", prefill, 2)]
        batch = engine.step()
        assert phases(batch) == [("a", decode, 1), ("b", decode, 1), ("c", prefill, 3)]
        assert (batch.decode_tokens, batch.prefill_tokens, batch.step) == (2, 3, 4)

    def test_31_the_last_token_of_a_prompt_is_prefill_beside_decodes(self) -> None:
        """Report 31."""
        engine = FakeEngine(num_blocks=100, max_num_seqs=4, max_num_batched_tokens=6)
        for name in "abc":
            engine.add(name, distinct_prompt(ord(name), 2), 20)
        engine.step()
        engine.add("d", distinct_prompt(4, 4), 20)
        engine.step()
        batch = engine.step()
        assert [phase for _, phase, _ in phases(batch)] == [Phase.DECODE] * 3 + [Phase.PREFILL]
        assert batch.items[-1].num_tokens == 1
        engine.drain()
        assert engine.streamed["d"] == answer(distinct_prompt(4, 4), 20)

    def test_no_work_is_an_empty_batch(self) -> None:
        engine = FakeEngine(num_blocks=4)
        batch = engine.scheduler.schedule()
        assert (batch.items, batch.step, batch.num_tokens, engine.scheduler.has_work) == ((), 0, 0, False)

    def test_first_come_first_served_even_if_a_shorter_one_would_fit(self) -> None:
        engine = FakeEngine(num_blocks=8)
        engine.add("first", distinct_prompt(1, 20), 4)
        engine.step()
        engine.add("long", distinct_prompt(2, 24), 4)
        engine.add("short", distinct_prompt(3, 2), 2)
        engine.step()
        assert [sequence.request_id for sequence in engine.scheduler.waiting] == ["long", "short"]
        engine.drain()
        first_steps = [engine.finished[name].first_step or 0 for name in ("first", "long", "short")]
        assert first_steps == sorted(first_steps)


class TestPrefixCache:
    def test_a_whole_hit_still_computes_the_last_token(self) -> None:
        engine = FakeEngine(num_blocks=20)
        prompt = distinct_prompt(1, 8)
        for name in ("cold", "warm"):
            engine.add(name, prompt, 3)
            engine.drain()
        assert engine.finished["warm"].num_cached_tokens == 4
        assert engine.streamed["warm"] == engine.streamed["cold"] == answer(prompt, 3)

    @pytest.mark.parametrize("cut", range(1, 21))
    def test_22_a_warm_run_equals_a_cold_one_at_every_cut(self, cut: int) -> None:
        """Report 22."""
        engine = FakeEngine(num_blocks=20, max_num_batched_tokens=8)
        prompt = distinct_prompt(22, 20)
        for name, text in (("cold", prompt), ("part", prompt[:cut]), ("again", prompt)):
            engine.add(name, text, 6)
            engine.drain()
            assert engine.streamed[name] == answer(text, 6)
        assert engine.finished["part"].num_cached_tokens == (cut - 1) // 4 * 4
        assert engine.finished["again"].num_cached_tokens == 16

    def test_18_equal_prompts_of_one_step_read_no_block_before_it_is_written(self) -> None:
        """Report 18."""
        engine = FakeEngine(num_blocks=40)
        prompt = distinct_prompt(18, 9)
        for name in "abc":
            engine.add(name, prompt, 6)
        engine.step()
        assert engine.pool.num_used == 2 + 3, "the equal blocks are shared as soon as they are computed"
        engine.drain()
        assert all(engine.streamed[name] == answer(prompt, 6) for name in "abc")

    @pytest.mark.parametrize("hash_function", [low_byte_hash, constant_hash])
    def test_20_equal_hashes_never_mix_answers(self, hash_function: HashBlock) -> None:
        """Report 20."""
        engine = FakeEngine(num_blocks=40, hash_block=hash_function)
        prompts = {"a": [65] * 9, "b": [321] * 9, "c": [65] * 4 + [321] * 5}
        for _round in range(2):
            for name, prompt in prompts.items():
                engine.add(name, prompt, 6)
            engine.drain()
            assert all(engine.streamed[name] == answer(prompt, 6) for name, prompt in prompts.items())

    def test_28_a_stopped_answer_is_found_by_the_next_turn(self) -> None:
        engine = FakeEngine(num_blocks=40)
        engine.add("turn 1", distinct_prompt(28, 10), 30)
        for _ in range(9):
            engine.step()
        engine.cancel("turn 1")
        history = engine.finished["turn 1"].token_ids
        engine.add("turn 2", [*history, 1, 2, 3], 4)
        engine.drain()
        # The last token was sampled, but the step that would have computed it never came.
        assert engine.finished["turn 2"].num_cached_tokens == (len(history) - 1) // 4 * 4
        assert engine.streamed["turn 2"] == answer([*history, 1, 2, 3], 4)


class TestCapacity:
    def test_14a_a_prompt_larger_than_the_pool_is_refused_at_once(self) -> None:
        """Report 14, with its own numbers: 33 tokens, 8 blocks of 4."""
        engine = FakeEngine(num_blocks=8)
        with pytest.raises(PromptTooLongError, match="33 tokens, but the whole KV cache allows 32"):
            engine.add("a", distinct_prompt(1, 33), 1)
        assert not engine.scheduler.has_work

    def test_14b_a_prompt_that_leaves_no_room_for_an_answer_is_refused(self) -> None:
        """Report 14."""
        engine = FakeEngine(num_blocks=8)
        with pytest.raises(PromptTooLongError, match="including the answer"):
            engine.add("a", distinct_prompt(1, 32), 5)

    def test_14c_an_answer_that_fills_the_pool_ends_with_a_reason(self) -> None:
        """Report 14."""
        engine = FakeEngine(num_blocks=8)
        engine.add("a", distinct_prompt(1, 30), 10)
        engine.drain()
        assert engine.reasons == {"a": "capacity"}
        assert engine.streamed["a"] == answer(distinct_prompt(1, 30), 2)
        assert engine.finished["a"].preemptions == 0

    @pytest.mark.parametrize("num_prompt_tokens", [30, 31])
    def test_14d_a_short_request_behind_it_is_served(self, num_prompt_tokens: int) -> None:
        """Report 14."""
        engine = FakeEngine(num_blocks=8)
        engine.add("long", distinct_prompt(1, num_prompt_tokens), 100)
        engine.add("short", distinct_prompt(2, 3), 3)
        engine.drain(limit=20)
        assert engine.reasons == {"long": "capacity", "short": "length"}
        assert engine.streamed["short"] == answer(distinct_prompt(2, 3), 3)

    @pytest.mark.parametrize("policy", SchedulingPolicy)
    @pytest.mark.parametrize("max_tokens", [1, 5, 100])
    @pytest.mark.parametrize("ahead", ["nobody", "somebody"])
    def test_14_every_length_is_refused_or_served_and_so_is_who_stands_behind(
        self, policy: SchedulingPolicy, max_tokens: int, ahead: str
    ) -> None:
        """Report 14: every prompt from one token to beyond the pool, alone and behind one that runs."""
        for length in range(1, 40):
            engine = FakeEngine(num_blocks=8, policy=policy)
            if ahead == "somebody":
                engine.add("ahead", distinct_prompt(3, 6), 20)
                engine.step()
            if length >= 32:
                with pytest.raises(PromptTooLongError):
                    engine.add("long", distinct_prompt(1, length), max_tokens)
            else:
                engine.add("long", distinct_prompt(1, length), max_tokens)
            engine.add("behind", distinct_prompt(2, 3), 3)
            engine.drain(limit=70)
            assert engine.streamed["behind"] == answer(distinct_prompt(2, 3), 3)
            if length < 32:
                new_tokens = min(max_tokens, 32 - length)
                assert engine.streamed["long"] == answer(distinct_prompt(1, length), new_tokens)
                assert engine.reasons["long"] == ("length" if new_tokens == max_tokens else "capacity")
                assert engine.finished["long"].preemptions <= (ahead == "somebody")

    def test_the_context_of_the_model_limits_prompt_and_answer(self) -> None:
        engine = FakeEngine(num_blocks=100, max_model_len=12)
        with pytest.raises(PromptTooLongError, match="12 tokens, but the context of the model allows 12"):
            engine.add("a", distinct_prompt(1, 12), 1)
        engine.add("b", distinct_prompt(2, 9))
        engine.drain()
        assert engine.reasons == {"b": "length"}
        assert len(engine.streamed["b"]) == 3

    def test_the_limit_of_the_request_is_a_length(self) -> None:
        engine = FakeEngine(num_blocks=8)
        sequence = engine.add("a", distinct_prompt(1, 30), 2)
        engine.drain()
        assert engine.scheduler.reached_limit(sequence) is FinishReason.LENGTH

    @pytest.mark.parametrize("max_tokens", [1, 5, 50])
    def test_a_pool_of_one_block(self, max_tokens: int) -> None:
        engine = FakeEngine(num_blocks=1, block_size=16)
        for name in "ab":
            engine.add(name, distinct_prompt(ord(name), 10), max_tokens)
        engine.drain()
        for name in "ab":
            assert engine.streamed[name] == answer(distinct_prompt(ord(name), 10), min(max_tokens, 6))


class TestPreemption:
    def test_the_newest_gives_way_and_comes_back_first(self) -> None:
        engine = FakeEngine(num_blocks=6, prefix_caching=False)
        for name in "abc":
            engine.add(name, distinct_prompt(ord(name), 3), 12)
        preempted = [sequence.request_id for batch in engine.steps(limit=200) for sequence in batch.preempted]
        assert preempted
        assert set(preempted) <= {"b", "c"}
        finished = [engine.finished[name].finish_step or 0 for name in "abc"]
        assert finished == sorted(finished)
        assert all(engine.streamed[name] == answer(distinct_prompt(ord(name), 3), 12) for name in "abc")

    def test_nobody_is_admitted_in_a_step_that_preempts(self) -> None:
        engine = FakeEngine(num_blocks=6)
        for name in "abcdef":
            engine.add(name, distinct_prompt(ord(name), 3), 12)
        for batch in engine.steps(limit=300):
            if batch.preempted:
                assert all(item.start > 0 for item in batch.items)

    def test_a_preempted_sequence_comes_back_only_for_its_whole_length_and_one_more(self) -> None:
        engine = FakeEngine(num_blocks=11, prefix_caching=False, max_num_batched_tokens=8)
        engine.add("old", distinct_prompt(1, 16), 20)
        engine.add("new", distinct_prompt(2, 16), 20)
        for _batch in engine.steps(limit=200):
            waiting = engine.scheduler.waiting
            if waiting and waiting[0].preemptions:
                free_before, held = engine.pool.num_free, waiting[0].num_tokens
                engine.step()
                if not engine.scheduler.waiting:
                    assert free_before >= math.ceil((held + 1) / 4)
        assert engine.finished["new"].preemptions == 1

    def test_a_recompute_counts_as_prefill(self) -> None:
        engine = FakeEngine(num_blocks=10, prefix_caching=False)
        engine.add("old", distinct_prompt(1, 16), 20)
        engine.add("new", distinct_prompt(2, 16), 20)
        for _batch in engine.steps(limit=200):
            pass
        recomputed = [
            item
            for batch in engine.batches
            for item in batch.items
            if item.sequence.request_id == "new" and item.phase is Phase.PREFILL
        ]
        assert len(recomputed) == 2
        assert recomputed[1].num_tokens > 16

    @pytest.mark.parametrize(
        ("old_limit", "new_limit", "blocks_needed"),
        [
            (8, 8, 2 + 2 + 1 + 1),  # both may grow
            (8, 1, 2 + 2 + 1),  # the newcomer ends with its first token
            (2, 8, 2 + 2 + 1),  # the old one ends within its block
            (2, 1, 2 + 2),
        ],
    )
    def test_a_newcomer_leaves_a_block_for_everyone_who_may_grow(
        self, old_limit: int, new_limit: int, blocks_needed: int
    ) -> None:
        for num_blocks in range(blocks_needed - 1, blocks_needed + 1):
            engine = FakeEngine(num_blocks=num_blocks)
            engine.add("old", distinct_prompt(1, 4), old_limit)
            engine.step()
            engine.add("new", distinct_prompt(2, 8), new_limit)
            items = phases(engine.step())
            assert items[0] == ("old", Phase.DECODE, 1)
            assert len(items) == 1 + (num_blocks == blocks_needed)

    def test_the_length_of_a_hit_is_that_of_the_first_admission(self) -> None:
        engine = FakeEngine(num_blocks=10)
        engine.add("old", distinct_prompt(1, 16), 20)
        sequence = engine.add("new", distinct_prompt(2, 16), 20)
        engine.drain()
        assert sequence.preemptions == 1
        hits = [item.start for batch in engine.batches for item in batch.items if item.sequence is sequence]
        assert hits.count(0) == 1, "it came back with a prefix hit"
        assert sequence.num_cached_tokens == 0

    def test_a_newcomer_may_take_all_where_nobody_can_grow(self) -> None:
        engine = FakeEngine(num_blocks=4)
        for name in "abcd":
            engine.add(name, distinct_prompt(ord(name), 2), 3)
        assert len(engine.step().items) == 4

    def test_the_chunks_of_a_long_prompt_leave_the_older_ones_their_growth(self) -> None:
        engine = FakeEngine(num_blocks=8, max_num_batched_tokens=9)
        engine.add("old", distinct_prompt(1, 5), 8)
        engine.step()
        engine.add("long", distinct_prompt(2, 27), 4)
        engine.drain()
        assert engine.finished["old"].preemptions == engine.finished["long"].preemptions == 0
        assert engine.streamed["long"] == answer(distinct_prompt(2, 27), 4)

    def test_15_a_preempted_sequence_comes_back_with_a_prefix_hit(self) -> None:
        """Report 15, with its own numbers: 6 blocks of 4, three prompts of 8 that share 4, 12 new tokens each."""
        engine = FakeEngine(num_blocks=6)
        prompts = {name: [1, 2, 3, 4, *distinct_prompt(ord(name), 4)] for name in "abc"}
        for name, prompt in prompts.items():
            engine.add(name, prompt, 12)
        engine.drain()
        assert sum(len(batch.preempted) for batch in engine.batches) >= 1
        assert all(engine.streamed[name] == answer(prompt, 12) for name, prompt in prompts.items())
        assert engine.pool.num_free == 6

    def test_25_recompute_neither_loses_nor_doubles_a_token(self) -> None:
        """Report 25."""
        engine = FakeEngine(num_blocks=9, max_num_batched_tokens=16)
        prompts = {f"r{index}": distinct_prompt(index, 2 + index) for index in range(8)}
        for name, prompt in prompts.items():
            engine.add(name, prompt, 20)
        engine.drain()
        assert sum(len(batch.preempted) for batch in engine.batches) >= 3
        assert all(engine.streamed[name] == answer(prompt, 20) for name, prompt in prompts.items())

    def test_17_an_evicted_prompt_is_computed_again(self) -> None:
        """Report 17."""
        engine = FakeEngine(num_blocks=6)
        prompts = {"a": distinct_prompt(1, 20), "b": distinct_prompt(2, 20)}
        for name in ("a", "b", "a"):
            engine.add(name, prompts[name], 3)
            engine.drain()
            assert engine.streamed[name] == answer(prompts[name], 3)


class TestCancel:
    def test_27_in_every_state(self) -> None:
        """Report 27."""
        engine = FakeEngine(num_blocks=9, max_num_seqs=4, max_num_batched_tokens=8)
        for name, length in (("bystander", 2), ("running", 5), ("half-prefilled", 30), ("waiting", 6)):
            engine.add(name, distinct_prompt(len(name), length), 10)
        engine.step()
        half = engine.scheduler.find("half-prefilled")
        assert half is not None
        assert 0 < half.num_computed < half.num_prompt_tokens or half.state is SequenceState.WAITING
        for name in ("waiting", "half-prefilled", "running", "running", "nobody"):
            engine.cancel(name)
        engine.drain()
        engine.cancel("bystander")
        assert engine.reasons["bystander"] == "length"
        assert engine.streamed["bystander"] == answer(distinct_prompt(len("bystander"), 2), 10)
        assert engine.pool.num_free == 9

    def test_27_while_half_prefilled(self) -> None:
        """Report 27."""
        engine = FakeEngine(num_blocks=9, max_num_batched_tokens=8)
        sequence = engine.add("a", distinct_prompt(1, 30), 4)
        engine.step()
        assert sequence.num_computed == 8
        engine.cancel("a")
        assert (sequence.state, sequence.block_table, engine.pool.num_free) == (SequenceState.FINISHED, [], 9)

    def test_27_while_preempted(self) -> None:
        """Report 27."""
        engine = FakeEngine(num_blocks=6)
        for name in "abc":
            engine.add(name, distinct_prompt(ord(name), 3), 12)
        while not engine.step().preempted:
            pass
        engine.cancel(engine.scheduler.waiting[0].request_id)
        engine.drain()
        assert sorted(engine.reasons.values()) == ["cancelled", "length", "length"]
        assert engine.pool.num_free == 6

    def test_between_schedule_and_complete_the_result_is_dropped(self) -> None:
        engine = FakeEngine(num_blocks=8)
        engine.add("a", distinct_prompt(1, 5), 4)
        engine.add("b", distinct_prompt(2, 5), 4)
        batch = engine.scheduler.schedule()
        sampled = engine.runner.run(batch)
        engine.scheduler.cancel("a")
        extended = engine.scheduler.complete(batch, sampled)
        assert [sequence.request_id for sequence in extended] == ["b"]
        engine.scheduler.check_integrity()

    @pytest.mark.parametrize("seed", range(4))
    def test_27_two_hundred_at_random(self, seed: int) -> None:
        """Report 27."""
        rng = random.Random(seed)
        engine = FakeEngine(num_blocks=10, max_num_seqs=4, max_num_batched_tokens=8)
        names = [f"r{index}" for index in range(50)]
        prompts = {name: [rng.randrange(2) for _ in range(rng.randint(1, 16))] for name in names}
        for name, prompt in prompts.items():
            engine.add(name, prompt, 8)
            engine.cancel(rng.choice(names))
            engine.step()
        engine.drain()
        for name, prompt in prompts.items():
            whole = engine.reasons[name] == "length"
            assert engine.streamed[name] == answer(prompt, 8 if whole else len(engine.streamed[name]))
        assert engine.pool.num_free == 10


class TestIntegrity:
    def test_blocks_of_a_sequence_that_is_not_there_are_noticed(self) -> None:
        engine = FakeEngine(num_blocks=8)
        engine.add("a", distinct_prompt(1, 5), 4)
        engine.step()
        engine.scheduler._running.clear()
        with pytest.raises(IntegrityError, match="counts 1 holders, but 0 tables"):
            engine.scheduler.check_integrity()

    def test_tokens_beyond_the_blocks_are_noticed(self) -> None:
        engine = FakeEngine(num_blocks=8)
        sequence = engine.add("a", distinct_prompt(1, 5), 4)
        engine.step()
        sequence.num_computed = 9
        with pytest.raises(IntegrityError, match="more tokens than its blocks hold"):
            engine.scheduler.check_integrity()
