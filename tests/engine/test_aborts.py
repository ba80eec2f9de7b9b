"""Report 27: aborts in every state, of unknown ids, and twice; no block is leaked and no other answer changes.

Report 28: an answer that was stopped keeps what it computed as a prefix for what follows.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from engine.config import SchedulingPolicy
from engine.engine import Engine
from engine.events import FinishReason, RequestFinished, StepOutput
from engine.requests import Request
from tests.fakes.reference import assert_greedy
from tests.fakes.tiny_model import VOCAB, chat_gguf, greedy, tiny_chat_model, tiny_engine

STATES = ("waiting", "in the prompt", "answering", "preempted", "just finished", "unknown", "twice")


@pytest.fixture(scope="module")
def reference() -> LlamaForCausalLM:
    return tiny_chat_model()


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory, reference: LlamaForCausalLM) -> Path:
    return chat_gguf(reference, tmp_path_factory.mktemp("model") / "tiny.gguf")


def crowded_engine(gguf: Path, policy: SchedulingPolicy = SchedulingPolicy.MIXED, **changes: Any) -> Engine:
    """Three slots, 17 blocks, small chunks: somebody always waits, prompts take steps, long answers preempt."""
    settings = {"num_kv_blocks": 17, "max_num_seqs": 3, "max_num_batched_tokens": 32, "max_chunk_tokens": 20}
    return tiny_engine(gguf, policy=policy, **(settings | changes))


def crowd() -> list[Request]:
    """Twelve requests; some prompts begin alike."""
    rng = random.Random(27)
    head = [rng.randrange(VOCAB) for _ in range(20)]
    lengths = [(70, 60), (24, 90), (48, 40), (3, 100), (33, 9), (16, 50), (90, 12), (20, 70), (5, 30), (61, 25)]
    lengths += [(17, 80), (40, 33)]
    return [
        greedy(
            f"request {index}", [*(head if index % 2 else []), *(rng.randrange(VOCAB) for _ in range(length))], count
        )
        for index, (length, count) in enumerate(lengths)
    ]


@dataclass
class Play:
    """A crowd on an engine, and what came of it."""

    engine: Engine
    tokens: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, RequestFinished] = field(default_factory=dict)
    just_finished: tuple[str, ...] = ()

    def submit(self, requests: list[Request]) -> None:
        for request in requests:
            self.engine.submit(request)
            self.tokens[request.request_id] = []

    def step(self) -> StepOutput:
        output = self.engine.step()
        for delta in output.deltas:
            assert delta.request_id not in self.ends, "a token after the end"
            self.tokens[delta.request_id] += delta.token_ids
        self.ends |= {end.request_id: end for end in output.finished}
        self.just_finished = tuple(end.request_id for end in output.finished)
        self.engine.check_integrity()
        return output

    def drain(self) -> None:
        while self.engine.has_work:
            self.step()
        assert self.engine._scheduler.pool.num_used == 0, "a block was leaked"

    def find(self, state: str) -> str | None:
        """Somebody who is in this state now."""
        running, waiting = self.engine._scheduler.running, self.engine._scheduler.waiting
        found = {
            "waiting": [each.request_id for each in waiting if not each.preemptions],
            "in the prompt": [each.request_id for each in running if 0 < each.num_computed < each.num_prompt_tokens],
            "answering": [each.request_id for each in running if each.num_new_tokens > 1],
            "preempted": [each.request_id for each in waiting if each.preemptions],
            "just finished": list(self.just_finished),
            "unknown": ["nobody"],
            "twice": [request_id for request_id, end in self.ends.items() if end.reason is FinishReason.CANCELLED],
        }[state]
        return found[0] if found else None

    def abort(self, request_id: str) -> None:
        was_open = request_id in self.tokens and request_id not in self.ends
        end = self.engine.cancel(request_id)
        self.engine.check_integrity()
        assert (end is not None) == was_open
        if end is not None:
            assert (end.reason, end.new_tokens) == (FinishReason.CANCELLED, len(self.tokens[request_id]))
            self.ends[request_id] = end


@pytest.fixture(scope="module")
def expected(gguf: Path) -> dict[str, list[int]]:
    """What the crowd answers when nobody is aborted."""
    play = Play(crowded_engine(gguf))
    play.submit(crowd())
    play.drain()
    return play.tokens


def assert_same(reference: LlamaForCausalLM, prompt: list[int], said: list[int], expected: list[int]) -> None:
    """Equal, or, where sums were rounded otherwise in another batch, as likely."""
    if said != expected[: len(said)]:
        assert_greedy(reference, prompt, said)


@pytest.mark.parametrize("count", [20, pytest.param(1_000, marks=pytest.mark.long)])
def test_27_random_aborts_leak_no_block_and_change_no_other_answer(
    gguf: Path, reference: LlamaForCausalLM, expected: dict[str, list[int]], count: int
) -> None:
    """Report 27: 1,000 aborts over all states, others' answers compared with a run in which nobody was aborted."""
    rng = random.Random(count)
    requests = crowd()
    states: Counter[str] = Counter()
    unchanged = changed = 0
    while states.total() < count:
        play = Play(crowded_engine(gguf, rng.choice(tuple(SchedulingPolicy))))
        play.submit(requests)
        abort_at_random(play, states, rng, count)
        play.drain()
        for request in requests:
            said = play.tokens[request.request_id]
            assert_same(reference, list(request.token_ids), said, expected[request.request_id])
            whole = play.ends[request.request_id].reason is FinishReason.LENGTH
            assert not whole or len(said) == len(expected[request.request_id])
            unchanged += whole and said == expected[request.request_id]
            changed += whole and said != expected[request.request_id]
    print(f"{states.total()} aborts {dict(states)}; {unchanged} other answers equal, {changed} as likely")
    assert set(states) == set(STATES)
    assert unchanged > 20 * changed


def abort_at_random(play: Play, states: Counter[str], rng: random.Random, count: int) -> None:
    """Ten or so aborts, of which half end somebody; what was tried the least comes first."""
    ended = 0
    while play.engine.has_work and ended < 6 and states.total() < count:
        play.step()
        if rng.random() < 0.75:
            continue
        state = min(STATES, key=lambda each: (states[each], rng.random()))
        victim = play.find(state)
        if victim is not None:
            states[state] += 1
            ended += victim not in play.ends and victim != "nobody"
            play.abort(victim)


@pytest.mark.parametrize("policy", SchedulingPolicy)
@pytest.mark.parametrize("state", STATES)
def test_27_an_abort_in_each_state(
    gguf: Path, reference: LlamaForCausalLM, expected: dict[str, list[int]], state: str, policy: SchedulingPolicy
) -> None:
    """Report 27: each state by itself, under each policy."""
    requests = crowd()
    play = Play(crowded_engine(gguf, policy))
    play.submit(requests)
    play.step()
    if state == "twice":
        play.abort("request 0")
    while (victim := play.find(state)) is None:
        play.step()
    free_before, held = play.engine._scheduler.pool.num_free, held_alone(play.engine, victim)
    play.abort(victim)
    assert play.engine._scheduler.pool.num_free == free_before + held
    play.drain()
    for request in requests:
        assert_same(reference, list(request.token_ids), play.tokens[request.request_id], expected[request.request_id])


def held_alone(engine: Engine, request_id: str) -> int:
    """Blocks that nobody else holds."""
    sequence = engine._scheduler.find(request_id)
    pool = engine._scheduler.pool
    return 0 if sequence is None else sum(pool.ref_count(block_id) == 1 for block_id in sequence.block_table)


@pytest.mark.parametrize("prompt_tokens", [5, 16, 30, 47])
@pytest.mark.parametrize("stop_after", [1, 2, 17, 18, 33])
def test_28_a_stopped_answer_is_a_prefix_of_what_follows(gguf: Path, prompt_tokens: int, stop_after: int) -> None:
    """Report 28: whole blocks of prompt and answer are found again; the token sampled last was never computed."""
    engine = tiny_engine(gguf)
    play = Play(engine)
    prompt = [(7 * at + prompt_tokens) % VOCAB for at in range(prompt_tokens)]
    play.submit([greedy("stopped", prompt, 100)])
    while len(play.tokens["stopped"]) < stop_after:
        play.step()
    play.abort("stopped")
    follow_up = [*prompt, *play.tokens["stopped"], *range(100, 120)]
    play.submit([greedy("follow-up", follow_up, 4)])
    first = play.step()
    play.drain()
    computed = prompt_tokens + stop_after - 1
    assert play.ends["follow-up"].cached_tokens == computed // 16 * 16
    assert first.stats.prefill_tokens == len(follow_up) - computed // 16 * 16


def test_28_a_stopped_answer_beside_others_is_a_prefix_too(gguf: Path) -> None:
    """Report 28: what others compute meanwhile takes nothing away while blocks are free."""
    engine = tiny_engine(gguf, max_num_seqs=4)
    play = Play(engine)
    requests = crowd()[:4]
    play.submit(requests)
    while min(len(said) for said in play.tokens.values()) < 5:
        play.step()
    play.abort("request 0")
    said = play.tokens["request 0"]
    follow_up = [*requests[0].token_ids, *said, 7, 8, 9]
    play.submit([greedy("follow-up", follow_up, 2)])
    play.drain()
    assert play.ends["follow-up"].cached_tokens == (len(requests[0].token_ids) + len(said) - 1) // 16 * 16
