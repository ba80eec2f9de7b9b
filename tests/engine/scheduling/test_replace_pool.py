"""Another pool under running sequences: nothing is lost, doubled or counted as a preemption."""

import random

import pytest

from engine.cache.block_pool import BlockPool
from engine.errors import CacheTooSmallError
from tests.engine.scheduling.fake_runner import FakeEngine, FakeRunner, answer
from tests.engine.scheduling.test_scheduler import distinct_prompt


def resize(engine: FakeEngine, num_blocks: int) -> None:
    """A pool of another size, and blocks that nothing was written to."""
    pool = BlockPool(num_blocks, engine.pool.block_size, prefix_caching=engine.pool.prefix_caching)
    engine.scheduler.replace_pool(pool)
    engine.pool, engine.runner = pool, FakeRunner(pool)
    engine.scheduler.check_integrity()


def test_answers_go_on_where_they_were() -> None:
    engine = FakeEngine(num_blocks=20)
    prompts = {name: distinct_prompt(ord(name), 9) for name in "abc"}
    for name, prompt in prompts.items():
        engine.add(name, prompt, 10)
    for _ in range(4):
        engine.step()
    resize(engine, 30)
    assert [each.request_id for each in engine.scheduler.waiting] == list("abc")
    assert engine.pool.num_used == 0
    batch = engine.step()
    assert batch.preempted == ()
    assert batch.prefill_tokens == 3 * (9 + 4), "prompt and answer so far are computed anew"
    engine.drain()
    assert engine.streamed == {name: answer(prompt, 10) for name, prompt in prompts.items()}
    assert [each.preemptions for each in engine.finished.values()] == [0, 0, 0]


def test_who_ran_comes_before_who_waited() -> None:
    engine = FakeEngine(num_blocks=20, max_num_seqs=2)
    for name in "abcd":
        engine.add(name, distinct_prompt(ord(name), 5), 10)
    engine.step()
    resize(engine, 10)
    assert [each.request_id for each in engine.scheduler.waiting] == list("abcd")


def test_the_length_of_a_hit_is_that_of_the_first_admission() -> None:
    engine = FakeEngine(num_blocks=20)
    engine.add("a", distinct_prompt(1, 9), 3)
    engine.drain()
    sequence = engine.add("b", distinct_prompt(1, 9), 5)
    engine.step()
    resize(engine, 20)
    engine.drain()
    assert sequence.num_cached_tokens == 8


def test_a_longer_answer_than_the_old_pool_held() -> None:
    """Without a limit of its own an answer ends with the pool: with the new one, not with the old one."""
    engine = FakeEngine(num_blocks=3)
    prompt = distinct_prompt(1, 6)
    engine.add("a", prompt)
    engine.step()
    resize(engine, 8)
    engine.drain()
    assert engine.streamed["a"] == answer(prompt, 8 * 4 - 6)
    assert engine.reasons["a"] == "capacity"


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_pool_that_an_open_sequence_can_never_fit_is_refused(state: str) -> None:
    engine = FakeEngine(num_blocks=20, max_num_seqs=1)
    prompt = distinct_prompt(2, 17)
    if state == "waiting":
        engine.add("first", distinct_prompt(1, 2), 4)
    engine.add("a", prompt, 10)
    if state == "waiting":
        engine.step()
    for _ in range(4 * (state == "running")):  # 17 and 3 tokens more: exactly five blocks
        engine.step()
    length = len(prompt) + len(engine.streamed["a"])
    needed = length // 4 + 1
    with pytest.raises(
        CacheTooSmallError, match=rf"has {length} with its prompt. Keep at least {needed} blocks"
    ) as error:
        resize(engine, needed - 1)
    assert error.value.needed_blocks == needed
    assert engine.pool.num_blocks == 20, "nothing has changed"
    engine.scheduler.check_integrity()
    resize(engine, needed)
    engine.drain()
    assert engine.streamed["a"] == answer(prompt, len(engine.streamed["a"]))
    assert len(engine.streamed["a"]) == min(10, needed * 4 - len(prompt))


@pytest.mark.parametrize("seed", range(20))
def test_random_traffic_under_pools_that_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    engine = FakeEngine(num_blocks=12, max_num_seqs=4, max_num_batched_tokens=rng.randint(4, 20))
    prompts: dict[str, list[int]] = {}
    sizes = []
    for turn in range(60):
        name = f"r{turn}"
        if rng.random() < 0.4:
            prompts[name] = [rng.randrange(2) for _ in range(rng.randint(1, 20))]
            engine.add(name, prompts[name], rng.randint(1, 12))
        for _ in range(rng.randrange(4)):
            if engine.scheduler.has_work:
                engine.step()
        if rng.random() < 0.2:
            sizes.append(rng.randint(9, 24))  # the longest has 32 tokens
            resize(engine, sizes[-1])
        if prompts and rng.random() < 0.1:
            engine.cancel(rng.choice(sorted(prompts)))
    engine.drain(limit=2_000)
    assert sizes
    assert engine.pool.num_used == 0
    for name, prompt in prompts.items():
        assert engine.streamed[name] == answer(prompt, len(engine.streamed[name]))
        assert engine.reasons[name] in ("length", "cancelled")
