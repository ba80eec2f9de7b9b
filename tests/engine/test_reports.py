"""Defects that were reported of other engines' scheduling and caching, tried on a whole engine with a tiny model.

Each is tried as its whole kind, not as its one example. The examples with blocks of four tokens stand beside the
scheduler; aborts and stopped answers have a file of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from engine.config import SchedulingPolicy
from engine.engine import Engine
from engine.errors import PromptTooLongError
from engine.events import FinishReason, RequestFinished, StepOutput
from engine.llm import LLM
from engine.requests import Request, SamplingParams
from tests.fakes.reference import assert_greedy
from tests.fakes.tiny_model import VOCAB, chat_gguf, greedy, tiny_chat_model, tiny_config, tiny_engine

BLOCK = 16
POLICIES = tuple(SchedulingPolicy)


@pytest.fixture(scope="module")
def reference() -> LlamaForCausalLM:
    return tiny_chat_model()


@pytest.fixture(scope="module")
def long_reference() -> LlamaForCausalLM:
    return tiny_chat_model(max_position_embeddings=1024)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory, reference: LlamaForCausalLM) -> Path:
    return chat_gguf(reference, tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def long_gguf(tmp_path_factory: pytest.TempPathFactory, long_reference: LlamaForCausalLM) -> Path:
    return chat_gguf(long_reference, tmp_path_factory.mktemp("model") / "long.gguf")


def tokens(seed: int, count: int) -> list[int]:
    """Ordinary tokens, other ones for each seed."""
    return [4 + (seed * 97 + 31 * at + at * at) % (VOCAB - 4) for at in range(count)]


@dataclass
class Run:
    """An engine and what it said."""

    engine: Engine
    prompts: dict[str, list[int]] = field(default_factory=dict)
    said: dict[str, list[int]] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    ends: dict[str, RequestFinished] = field(default_factory=dict)
    outputs: list[StepOutput] = field(default_factory=list)

    def ask(self, name: str, prompt: list[int], count: int) -> None:
        self.engine.submit(greedy(name, prompt, count))
        self.prompts[name], self.said[name], self.text[name] = prompt, [], ""

    def step(self) -> StepOutput:
        output = self.engine.step()
        self.outputs.append(output)
        for delta in output.deltas:
            assert delta.request_id not in self.ends
            self.said[delta.request_id] += delta.token_ids
            self.text[delta.request_id] += delta.text
        self.ends |= {end.request_id: end for end in output.finished}
        self.engine.check_integrity()
        stats, pool = output.stats, self.engine._scheduler.pool
        assert stats.blocks_used + stats.blocks_free == stats.blocks_total == pool.num_blocks
        assert 0 <= stats.blocks_cached <= stats.blocks_free
        return output

    def drain(self, *, limit: int = 2_000) -> None:
        for _ in range(limit):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, "waits for ever"
        assert self.engine._scheduler.pool.num_used == 0, "the free count returns to its start"

    def ask_alone(self, name: str, prompt: list[int], count: int) -> RequestFinished:
        self.ask(name, prompt, count)
        self.drain()
        return self.ends[name]

    def check(self, reference: LlamaForCausalLM, names: Iterable[str] = ()) -> None:
        """Each token is the reference's on the same prefix."""
        for name in names or self.said:
            assert_greedy(reference, self.prompts[name], self.said[name])

    @property
    def preemptions(self) -> int:
        return sum(end.preemptions for end in self.ends.values())


# --- 14: larger than the pool ---


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prompt_tokens", [480, 500, 511, 512, 513, 900, 1023, 1024, 1500])
def test_14_whatever_does_not_fit_is_refused_or_ends_and_who_is_behind_it_is_served(
    long_gguf: Path, long_reference: LlamaForCausalLM, prompt_tokens: int, policy: SchedulingPolicy
) -> None:
    """Report 14: a pool of 32 blocks under a context of 1,024 tokens; prompts below, at and above both."""
    run = Run(tiny_engine(long_gguf, num_kv_blocks=32, max_model_len=1024, policy=policy))
    short = tokens(2, 5)
    if prompt_tokens < 512:
        run.ask("long", tokens(1, prompt_tokens), 100)
    else:
        with pytest.raises(PromptTooLongError, match=rf"{prompt_tokens:,} tokens, but the whole KV cache allows 512"):
            run.ask("long", tokens(1, prompt_tokens), 100)
    run.ask("behind", short, 4)
    run.drain(limit=200)
    assert (run.ends["behind"].reason, run.ends["behind"].new_tokens) == (FinishReason.LENGTH, 4)
    if prompt_tokens < 512:
        end = run.ends["long"]
        assert (end.reason, end.new_tokens) == (FinishReason.CAPACITY, 512 - prompt_tokens)
        assert end.preemptions <= 1
    run.check(long_reference)


@pytest.mark.parametrize("policy", POLICIES)
def test_14_several_that_fit_only_alone_come_one_after_another(
    gguf: Path, reference: LlamaForCausalLM, policy: SchedulingPolicy
) -> None:
    """Report 14: two that need the whole pool neither block each other nor the short one behind them."""
    run = Run(tiny_engine(gguf, num_kv_blocks=8, max_model_len=128, policy=policy))
    for index in range(3):
        run.ask(f"long {index}", tokens(index, 100), 27)
    run.ask("short", tokens(9, 5), 4)
    run.drain(limit=300)
    assert {end.reason for end in run.ends.values()} == {FinishReason.LENGTH}
    run.check(reference)


# --- 15 and 25: recompute after preemption ---

SMALL: list[dict[str, Any]] = [
    {"num_kv_blocks": 6, "max_model_len": 96},
    {"num_kv_blocks": 7, "max_model_len": 96, "max_chunk_tokens": 5},
    {"num_kv_blocks": 8, "max_model_len": 96, "max_num_batched_tokens": 16},
    {"num_kv_blocks": 9, "max_model_len": 96, "prefix_caching": False},
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("settings", SMALL, ids=lambda each: f"{each['num_kv_blocks']}-blocks")
def test_15_a_preempted_answer_comes_back_over_a_shared_prefix(
    gguf: Path, reference: LlamaForCausalLM, settings: dict[str, Any], policy: SchedulingPolicy
) -> None:
    """Report 15: three prompts that share their first block, and too few blocks for three answers."""
    engine = tiny_engine(gguf, policy=policy, **settings)
    run = Run(engine)
    head = tokens(15, BLOCK)
    for name in "abc":
        run.ask(name, [*head, *tokens(ord(name), BLOCK)], 3 * BLOCK)
    run.drain()
    assert run.preemptions >= 1
    assert {len(said) for said in run.said.values()} == {3 * BLOCK}
    run.check(reference)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("settings", SMALL, ids=lambda each: f"{each['num_kv_blocks']}-blocks")
def test_25_recompute_neither_loses_nor_doubles_a_token_or_its_text(
    gguf: Path, reference: LlamaForCausalLM, settings: dict[str, Any], policy: SchedulingPolicy
) -> None:
    """Report 25: three preemptions and more; the streamed text is that of all tokens, each told once."""
    engine = tiny_engine(gguf, policy=policy, **settings)
    run = Run(engine)
    for index in range(12):
        run.ask(f"r{index}", tokens(index, 3 + 5 * (index % 6)), 60)
    run.drain()
    assert run.preemptions >= 3
    assert sum(output.stats.preempted for output in run.outputs) == run.preemptions
    recomputed_tokens = sum(end.recomputed_tokens for end in run.ends.values())
    assert sum(output.stats.recomputed_tokens for output in run.outputs) == recomputed_tokens > 0
    tokenizer = engine._model.tokenizer
    assert tokenizer is not None
    for name, said in run.said.items():
        assert len(said) == run.ends[name].new_tokens == 60
        spelled = b"".join(tokenizer.token_bytes(token_id) for token_id in said).decode(errors="replace")
        assert run.text[name].rstrip("�") == spelled.rstrip("�")
    run.check(reference)


# --- 17: blocks that were evicted and used again ---


@pytest.mark.parametrize("blocks_of_b", range(1, 7))
@pytest.mark.parametrize("policy", POLICIES)
def test_17_a_prompt_whose_blocks_were_taken_in_part_or_whole_is_computed_again(
    gguf: Path, reference: LlamaForCausalLM, blocks_of_b: int, policy: SchedulingPolicy
) -> None:
    """Report 17: A fills the pool, B takes one to six of its blocks, A comes again, then B."""
    run = Run(tiny_engine(gguf, num_kv_blocks=6, max_model_len=96, policy=policy))
    a, b = tokens(1, 5 * BLOCK + 3), tokens(2, blocks_of_b * BLOCK - 3)
    for name, prompt in (("a", a), ("b", b), ("a again", a), ("b again", b)):
        end = run.ask_alone(name, prompt, 3)
        assert end.cached_tokens <= (len(prompt) - 1) // BLOCK * BLOCK
    assert run.ends["a again"].cached_tokens <= max(6 - blocks_of_b, 0) * BLOCK
    run.check(reference)


# --- 18: equal prompts of one step ---


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prompt_tokens", [15, 16, 17, 33, 48])
@pytest.mark.parametrize("chunk", [None, 7])
def test_18_equal_prompts_of_one_step_read_no_block_before_it_is_written(
    gguf: Path, reference: LlamaForCausalLM, prompt_tokens: int, chunk: int | None, policy: SchedulingPolicy
) -> None:
    """Report 18: four of them at once, whole or in chunks, and one more while they compute."""
    run = Run(tiny_engine(gguf, max_chunk_tokens=chunk, policy=policy))
    prompt = tokens(18, prompt_tokens)
    for name in "abcd":
        run.ask(name, prompt, 6)
    run.step()
    run.ask("e", prompt, 6)
    run.drain()
    run.check(reference)
    assert {end.new_tokens for end in run.ends.values()} == {6}


# --- 20: equal hashes ---


@pytest.mark.parametrize("hash_name", ["constant", "low-byte", "sum"])
def test_20_equal_hashes_never_mix_answers(gguf: Path, reference: LlamaForCausalLM, hash_name: str) -> None:
    """Report 20: tokens that differ by 256, and a hash that says nothing at all."""
    hashes: dict[str, Any] = {
        "constant": lambda _parent, _tokens: 7,
        "low-byte": lambda parent, ids: parent * 31 + sum(token & 0xFF for token in ids),
        "sum": lambda parent, ids: (parent + sum(ids)) % 3,
    }
    engine = tiny_engine(gguf)
    engine._scheduler.pool._hash_block = hashes[hash_name]
    run = Run(engine)
    prompts = {"a": [5] * 40, "b": [261] * 40, "c": [5] * 20 + [261] * 20, "d": [261] * 16 + [5] * 24}
    for turn in range(3):
        for name, prompt in prompts.items():
            run.ask(f"{name} {turn}", prompt, 4)
        run.drain()
    run.check(reference)
    assert any(end.cached_tokens for end in run.ends.values()), "what is equal is still shared"


# --- 22: cold and warm ---


@pytest.mark.parametrize("policy", POLICIES)
def test_22_a_hit_at_every_cut_answers_like_a_cold_run(
    gguf: Path, reference: LlamaForCausalLM, policy: SchedulingPolicy
) -> None:
    """Report 22: every prompt twice, cut at every token over three blocks."""
    run = Run(tiny_engine(gguf, num_kv_blocks=40, policy=policy))
    prompt = tokens(22, 3 * BLOCK + 2)
    assert run.ask_alone("cold", prompt, 4).cached_tokens == 0
    for cut in range(1, len(prompt) + 1):
        end = run.ask_alone(f"warm {cut}", prompt[:cut], 4)
        assert end.cached_tokens == (cut - 1) // BLOCK * BLOCK
    run.check(reference)


# --- 29: again and again ---


def test_29_an_engine_that_was_drained_serves_again(gguf: Path) -> None:
    """Report 29: the same ids in a second and third batch, nothing lost, nobody waits."""
    prompts = [tokens(index, 10 + 7 * index) for index in range(5)]
    with LLM(tiny_config(gguf)) as llm:
        answers = [llm.generate(prompts, [6] * 5) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        for _ in range(2):
            requests = [greedy(f"r{index}", prompt, 6) for index, prompt in enumerate(prompts)]
            ends = [end for output in llm.run(requests) for end in output.finished]
            assert sorted(end.request_id for end in ends) == [f"r{index}" for index in range(5)]


def test_29_the_stream_of_an_answer_that_fails_ends_with_its_end(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report 29: an iterator never waits for what will not come."""
    with LLM(tiny_config(gguf)) as llm:
        tokenizer = llm._engine._model.tokenizer
        assert tokenizer is not None
        monkeypatch.setattr(tokenizer, "token_bytes", None)
        ends: list[RequestFinished] = []
        for _output in llm.run([greedy("a", tokens(1, 9), 5)]):
            ends += _output.finished
        assert [(end.request_id, end.reason) for end in ends] == [("a", FinishReason.ERROR)]


def test_29_a_step_that_fails_ends_the_iterator_and_leaves_nothing_open(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report 29: the caller sees the error, and the next batch is served."""
    with LLM(tiny_config(gguf)) as llm:
        decoder = llm._engine._model.runner._decoder

        def break_down(*_arguments: Any) -> None:
            raise RuntimeError("the matrix unit caught fire")

        monkeypatch.setattr(decoder, "forward", break_down)
        with pytest.raises(RuntimeError, match="caught fire"):
            list(llm.run([greedy(name, tokens(1, 40), 5) for name in "ab"]))
        monkeypatch.undo()
        assert not llm._engine.has_work
        llm._engine.check_integrity()
        assert [len(said) for said in llm.generate([tokens(1, 40)], [5])] == [5]


# --- 31: one token of a prompt beside decodes ---


@pytest.mark.parametrize("chunk", [1, 2, 15, 16, 17])
@pytest.mark.parametrize("policy", POLICIES)
def test_31_small_chunks_beside_decodes_answer_like_the_reference(
    gguf: Path, reference: LlamaForCausalLM, chunk: int, policy: SchedulingPolicy
) -> None:
    """Report 31: chunks of one token are prefill, beside three decodes or alone."""
    run = Run(tiny_engine(gguf, max_num_seqs=4, max_chunk_tokens=chunk, policy=policy))
    for name in "abc":
        run.ask(name, tokens(ord(name), 3), 60)
    while any(len(said) < 2 for said in run.said.values()):
        run.step()
    run.ask("d", tokens(4, 34), 6)
    run.drain()
    run.check(reference)
    shapes = {(output.stats.prefill_tokens, output.stats.decode_tokens) for output in run.outputs}
    assert ((chunk, 3) in shapes) == (policy is SchedulingPolicy.MIXED)


def test_31_a_prompt_cut_so_that_one_token_is_left(gguf: Path, reference: LlamaForCausalLM) -> None:
    """Report 31: the budget leaves exactly the last token of a prompt to the next step, beside three decodes."""
    run = Run(tiny_engine(gguf, max_num_seqs=4, max_num_batched_tokens=20))
    for name in "abc":
        run.ask(name, tokens(ord(name), 3), 20)
    run.step()
    run.ask("d", tokens(4, 18), 6)
    run.step()
    output = run.step()
    assert (output.stats.prefill_tokens, output.stats.decode_tokens) == (1, 3)
    run.drain()
    run.check(reference)


# --- options of the scheduler change nothing but the order of work ---


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [1, 3, 8])
def test_policy_chunks_and_slots_change_no_answer(
    gguf: Path, reference: LlamaForCausalLM, policy: SchedulingPolicy, slots: int
) -> None:
    run = Run(tiny_engine(gguf, policy=policy, max_num_seqs=slots, max_num_batched_tokens=24, max_chunk_tokens=9))
    for index in range(8):
        run.ask(f"r{index}", tokens(index, 1 + 9 * index), 10)
    run.drain()
    run.check(reference)
    assert max(output.stats.running for output in run.outputs) <= slots
    assert run.engine.info.policy == policy.value


def test_a_seeded_draw_is_the_same_under_every_policy(gguf: Path) -> None:
    said = []
    for policy in POLICIES:
        run = Run(tiny_engine(gguf, policy=policy, num_kv_blocks=12, max_model_len=96, max_chunk_tokens=5))
        for index in range(4):
            sampling = SamplingParams(temperature=1.0, seed=index, max_tokens=30, ignore_eos=True)
            run.engine.submit(Request(request_id=f"r{index}", token_ids=tuple(tokens(index, 20)), sampling=sampling))
            run.said[f"r{index}"], run.text[f"r{index}"] = [], ""
        run.drain()
        said.append(run.said)
    assert said[0] == said[1]
