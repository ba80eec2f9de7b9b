"""The engine's behaviour: how answers end, what is shown of them, what is counted, and what errors leave behind."""

import gc
import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from engine.errors import PromptTooLongError, RequestError, UsageError
from engine.events import FinishReason, Phase, RequestFinished, StepOutput, StepStats
from engine.requests import Message, Request, SamplingParams
from tests.fakes.scripted_decoder import FILLER, say
from tests.fakes.tiny_model import VOCAB, chat_gguf, greedy, tiny_chat_model, tiny_config, tiny_engine

EOS, EOT = 1, 3
PROMPT = list(range(50, 60))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two end tokens, a context of 1,024 tokens."""
    model = tiny_chat_model(max_position_embeddings=1024)
    extra = {"tokenizer.ggml.eot_token_id": EOT}
    return chat_gguf(model, tmp_path_factory.mktemp("model") / "tiny.gguf", extra=extra)


@pytest.fixture
def engine(gguf: Path) -> Iterator[Engine]:
    engine = tiny_engine(gguf, max_num_batched_tokens=64)
    yield engine
    assert not engine.has_work
    engine.check_integrity()
    assert engine._scheduler.pool.num_used == 0, "a block was leaked"
    engine.close()


def encode(engine: Engine, text: str) -> list[int]:
    tokenizer = engine._model.tokenizer
    assert tokenizer is not None
    return tokenizer.encode(text)


def byte_tokens(engine: Engine, text: str) -> list[int]:
    """A token for every byte, so that characters are cut in pieces."""
    tokenizer = engine._model.tokenizer
    assert tokenizer is not None
    by_byte = {tokenizer.token_bytes(token_id): token_id for token_id in range(4, 260)}
    return [by_byte[bytes([byte])] for byte in text.encode()]


def run(engine: Engine, *requests: Request) -> list[StepOutput]:
    for request in requests:
        engine.submit(request)
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
        engine.check_integrity()
    return outputs


def pieces(outputs: list[StepOutput]) -> list[str]:
    return [delta.text for output in outputs for delta in output.deltas]


def tokens(outputs: list[StepOutput], request_id: str) -> list[int]:
    return [
        token
        for output in outputs
        for delta in output.deltas
        if delta.request_id == request_id
        for token in delta.token_ids
    ]


def end_of(outputs: list[StepOutput], request_id: str = "a") -> RequestFinished:
    (end,) = [end for output in outputs for end in output.finished if end.request_id == request_id]
    return end


def answer(engine: Engine, script: list[int], max_tokens: int | None = 50, **sampling: Any) -> tuple[str, Any]:
    """What is shown of a scripted answer, and its end."""
    say(engine, script, prompt_tokens=len(PROMPT))
    settings = {"temperature": 0.0, "max_tokens": max_tokens} | sampling
    request = Request(request_id="a", token_ids=tuple(PROMPT), sampling=SamplingParams(**settings))
    outputs = run(engine, request)
    assert tokens(outputs, "a")[: len(script)] == script[: end_of(outputs).new_tokens]
    return "".join(pieces(outputs)), end_of(outputs)


# --- how an answer ends ---


@pytest.mark.parametrize("end_token", [EOS, EOT])
def test_every_end_token_ends_the_answer(engine: Engine, end_token: int) -> None:
    words = encode(engine, "all is said")
    shown, end = answer(engine, [*words, end_token, *words])
    assert shown == "all is said"
    assert end.reason is FinishReason.EOS
    assert end.new_tokens == len(words) + 1


def test_an_end_token_can_be_ignored(engine: Engine) -> None:
    shown, end = answer(engine, [*encode(engine, "go"), EOS, *encode(engine, " on")], 12, ignore_eos=True)
    assert shown.startswith("go on")
    assert "<|" not in shown
    assert (end.reason, end.new_tokens) == (FinishReason.LENGTH, 12)


def test_the_limit_counts_new_tokens(engine: Engine) -> None:
    shown, end = answer(engine, byte_tokens(engine, "abcdef"), 4)
    assert shown == "abcd"
    assert (end.reason, end.new_tokens, end.prompt_tokens) == (FinishReason.LENGTH, 4, len(PROMPT))


def test_one_token_is_an_answer(engine: Engine) -> None:
    _, end = answer(engine, [FILLER], 1)
    assert end.new_tokens == 1
    assert end.first_step == end.finish_step == 1
    assert end.tokens_per_s is None


def test_an_end_token_at_the_limit_is_the_end(engine: Engine) -> None:
    _, end = answer(engine, [FILLER, EOS], 2)
    assert end.reason is FinishReason.EOS


def test_without_a_limit_the_context_ends_it(gguf: Path) -> None:
    engine = tiny_engine(gguf, max_model_len=32)
    say(engine, [], prompt_tokens=len(PROMPT))
    outputs = run(engine, greedy("a", PROMPT, 10_000))
    end = end_of(outputs)
    assert (end.reason, end.new_tokens, end.message) == (FinishReason.LENGTH, 32 - len(PROMPT), "")


def test_a_cache_smaller_than_the_context_ends_it_with_a_sentence(gguf: Path) -> None:
    engine = tiny_engine(gguf, block_size=256, num_kv_blocks=2, max_model_len=1024, max_num_batched_tokens=512)
    say(engine, [], prompt_tokens=500)
    end = end_of(run(engine, greedy("a", [FILLER] * 500, 10_000)))
    assert (end.reason, end.new_tokens) == (FinishReason.CAPACITY, 12)
    assert end.message == (
        "The answer filled the whole KV cache of 512 tokens. Give it more blocks or free memory to go on."
    )
    with pytest.raises(PromptTooLongError, match="the whole KV cache allows 512"):
        engine.submit(greedy("b", [FILLER] * 512, 1))


# --- stop strings ---


@pytest.mark.parametrize("cut", [byte_tokens, encode], ids=["bytes", "merges"])
@pytest.mark.parametrize("stop", [("END",), ("nowhere", "END"), ("ND", "END"), ("END of it",)])
def test_a_stop_string_is_never_shown(engine: Engine, cut: Any, stop: tuple[str, ...]) -> None:
    text = "One ENtry, then END of it all"
    before = min((text[: text.index(each)] for each in stop if each in text), key=len)
    if stop == ("ND", "END"):
        before = "One ENtry, then "  # both are complete at the same character: the longer one hides more
    say(engine, cut(engine, text), prompt_tokens=len(PROMPT))
    sampling = SamplingParams(temperature=0.0, max_tokens=60, stop=stop)
    outputs = run(engine, Request(request_id="a", token_ids=tuple(PROMPT), sampling=sampling))
    for shown in itertools.accumulate(pieces(outputs)):
        assert before.startswith(shown)
    assert "".join(pieces(outputs)) == before
    assert end_of(outputs).reason is FinishReason.STOP
    assert end_of(outputs).new_tokens < len(cut(engine, text))


@pytest.mark.parametrize("last", [[EOS], []], ids=["eos", "length"])
def test_a_stop_string_that_never_came_is_shown_in_the_end(engine: Engine, last: list[int]) -> None:
    words = byte_tokens(engine, "a B")
    shown, end = answer(engine, [*words, *last], len(words) + len(last), stop=("BIG",))
    assert shown == "a B"
    assert end.reason is (FinishReason.EOS if last else FinishReason.LENGTH)


def test_a_stop_string_at_the_limit_is_the_reason(engine: Engine) -> None:
    shown, end = answer(engine, byte_tokens(engine, "ab!"), 3, stop=("!",))
    assert (shown, end.reason) == ("ab", FinishReason.STOP)


def test_a_stop_string_in_the_prompt_says_nothing(engine: Engine) -> None:
    prompt = encode(engine, "stop stop stop")
    say(engine, encode(engine, "fine"), prompt_tokens=len(prompt))
    outputs = run(engine, greedy("a", prompt, 4, stop=("stop",)))
    assert end_of(outputs).reason is FinishReason.LENGTH


# --- whole characters ---


def test_text_comes_in_whole_characters(engine: Engine) -> None:
    text = "é 世界 🙂 ů ﷽ 👩‍👩‍👧 end"
    say(engine, byte_tokens(engine, text), prompt_tokens=len(PROMPT))
    outputs = run(engine, greedy("a", PROMPT, len(text.encode())))
    assert "".join(pieces(outputs)) == text
    characters = iter(text)
    for piece in pieces(outputs):
        assert piece in {"", *itertools.islice(characters, len(piece))}, "a character of several bytes comes at once"


@pytest.mark.parametrize("last", [[EOS], []], ids=["eos", "length"])
def test_half_a_character_at_the_end_is_one_mark(engine: Engine, last: list[int]) -> None:
    script = [*byte_tokens(engine, "ok 🙂")[:-1], *last]
    shown, _ = answer(engine, script, len(script))
    assert shown == "ok \N{REPLACEMENT CHARACTER}"


def test_every_token_is_reported_even_without_text(engine: Engine) -> None:
    script = byte_tokens(engine, "🙂")
    say(engine, script, prompt_tokens=len(PROMPT))
    outputs = run(engine, greedy("a", PROMPT, 4))
    assert [[delta.token_ids for delta in output.deltas] for output in outputs] == [[(token,)] for token in script]


def test_an_answer_whose_text_fails_ends_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = engine._model.tokenizer
    assert tokenizer is not None
    spell = tokenizer.token_bytes

    def fail_at_filler(token_id: int, **options: bool) -> bytes:
        if token_id == FILLER:
            raise ValueError("no such piece")
        return spell(token_id, **options)

    say(engine, byte_tokens(engine, "fine so far"), prompt_tokens=len(PROMPT))
    monkeypatch.setattr(tokenizer, "token_bytes", fail_at_filler)
    outputs = run(engine, greedy("a", PROMPT, 50), greedy("b", PROMPT[::-1], 11))
    assert end_of(outputs, "b").reason is FinishReason.LENGTH
    end = end_of(outputs, "a")
    assert (end.reason, end.new_tokens) == (FinishReason.ERROR, 12)
    assert end.message == "The answer's text could not be made: no such piece. Ask again."


# --- steps and blocks ---


def mixed_requests() -> list[Request]:
    """Prompts of 5 to 90 tokens, answers of 3 to 30."""
    return [
        greedy(name, [(7 * index + at) % VOCAB for at in range(length)], count)
        for index, (name, length, count) in enumerate(
            [("a", 5, 30), ("b", 90, 3), ("c", 16, 17), ("d", 33, 12), ("e", 48, 8), ("f", 20, 25)]
        )
    ]


def test_counts_of_every_step_add_up(engine: Engine) -> None:
    engine.set_watched(enabled=True)
    for request in mixed_requests():
        engine.submit(request)
    stats: list[StepStats] = []
    open_requests = {request.request_id for request in mixed_requests()}
    while engine.has_work:
        output = engine.step()
        stats.append(output.stats)
        open_requests -= {end.request_id for end in output.finished}
        check_step(engine, output, open_requests)
    assert [each.step for each in stats] == list(range(1, len(stats) + 1))
    times = [each.time_s for each in stats]
    assert times == sorted(times)
    assert stats[-1].running == stats[-1].waiting == stats[-1].blocks_used == 0
    prompts = sum(len(request.token_ids) for request in mixed_requests())
    assert sum(each.prefill_tokens for each in stats) == prompts
    # The prefill gives each answer's first token, and the last one of all is never computed.
    new_tokens = sum(request.sampling.max_tokens or 0 for request in mixed_requests())
    assert sum(each.decode_tokens for each in stats) == new_tokens - len(mixed_requests())


def check_step(engine: Engine, output: StepOutput, open_requests: set[str]) -> None:
    """As it stands after the step's finishes."""
    stats, block_map = output.stats, engine.block_map()
    held = {block for owner in block_map.owners for block in owner.block_ids}
    assert stats.blocks_used + stats.blocks_free == stats.blocks_total == 64
    assert stats.blocks_used == len(held)
    assert stats.blocks_cached == len(block_map.cached) <= stats.blocks_free
    assert not held & set(block_map.cached)
    assert held | set(block_map.cached) <= set(range(1, 65)), "block 0 is for padding"
    assert stats.running + stats.waiting == len(open_requests)
    assert {owner.request_id for owner in block_map.owners} <= open_requests
    assert 0 < stats.prefill_tokens + stats.decode_tokens <= 64
    rows = {phase: [row for row in stats.rows if row.phase is phase] for phase in Phase}
    assert sum(row.tokens for row in rows[Phase.PREFILL]) == stats.prefill_tokens
    assert sum(row.tokens for row in rows[Phase.DECODE]) == len(rows[Phase.DECODE]) == stats.decode_tokens
    assert len(rows[Phase.WAITING]) == stats.waiting
    assert stats.step_ms == stats.schedule_ms + stats.forward_ms + stats.sample_ms > 0


def test_rows_only_while_watched(engine: Engine) -> None:
    engine.submit(greedy("a", PROMPT, 3))
    assert engine.step().stats.rows == ()
    engine.set_watched(enabled=True)
    assert [row.request_id for row in engine.step().stats.rows] == ["a"]
    engine.set_watched(enabled=False)
    assert engine.step().stats.rows == ()


def test_first_and_last_step_span_the_answer(engine: Engine) -> None:
    outputs = run(engine, *mixed_requests())
    for request in mixed_requests():
        end = end_of(outputs, request.request_id)
        assert end.preemptions == 0
        assert end.first_step is not None
        assert end.finish_step is not None
        assert end.finish_step - end.first_step + 1 == end.new_tokens == request.sampling.max_tokens
        produced = [o.stats.step for o in outputs for d in o.deltas if d.request_id == request.request_id]
        assert produced == list(range(end.first_step, end.finish_step + 1))
        assert end.finish_step == next(o.stats.step for o in outputs if end in o.finished)
        assert end.ttft_s is not None
        assert end.ttft_s > 0
        assert end.decode_s > 0


def test_steps_are_counted_on_over_requests(engine: Engine) -> None:
    run(engine, greedy("a", PROMPT, 3))
    end = end_of(run(engine, greedy("b", PROMPT, 2)), "b")
    assert (end.first_step, end.finish_step) == (4, 5)


# --- prefix cache ---


@pytest.mark.parametrize(("length", "cached"), [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32), (40, 32)])
def test_a_second_equal_prompt_is_cached_up_to_its_last_token(engine: Engine, length: int, cached: int) -> None:
    prompt = list(range(60, 60 + length))
    first = run(engine, greedy("a", prompt, 2))
    second = run(engine, greedy("b", prompt, 2))
    assert end_of(first, "a").cached_tokens == 0
    assert end_of(second, "b").cached_tokens == cached
    assert second[0].stats.prefill_tokens == length - cached
    assert tokens(second, "b") == tokens(first, "a")


def test_a_second_turn_finds_the_first(engine: Engine) -> None:
    first = (Message("user", "A question with a number of words in it, so that it fills several blocks."),)
    template = engine._model.chat_template
    assert template is not None
    prompt = template.render(first)
    reply = "an answer of some length as well, in quite a few plain words"
    say(engine, [*encode(engine, reply), EOS], prompt_tokens=len(prompt))
    sampling = SamplingParams(temperature=0.0, max_tokens=100)
    outputs = run(engine, Request(request_id="a", messages=first, sampling=sampling))
    assert "".join(pieces(outputs)) == reply
    second = (*first, Message("assistant", reply), Message("user", "And then?"))
    say(engine, [EOS], prompt_tokens=len(template.render(second)))
    end = end_of(run(engine, Request(request_id="b", messages=second, sampling=sampling)), "b")
    assert end.cached_tokens >= len(prompt) // 16 * 16
    assert end.cached_tokens >= 48


def test_without_a_prefix_cache_all_is_computed(gguf: Path) -> None:
    engine = tiny_engine(gguf, prefix_caching=False)
    run(engine, greedy("a", PROMPT * 4, 2))
    outputs = run(engine, greedy("b", PROMPT * 4, 2))
    assert end_of(outputs, "b").cached_tokens == 0
    assert outputs[-1].stats.blocks_cached == 0


# --- what cannot be served ---


def test_a_second_request_of_the_same_id_is_refused(engine: Engine) -> None:
    engine.submit(greedy("a", PROMPT, 3))
    with pytest.raises(RequestError, match="'a' is open already"):
        engine.submit(greedy("a", PROMPT, 3))
    assert end_of(run(engine)).new_tokens == 3
    assert end_of(run(engine, greedy("a", PROMPT, 2))).new_tokens == 2, "after its end the id is free again"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"text": ""}, "The prompt is empty; type something first."),
        ({"token_ids": (5, VOCAB)}, "Token id 320 is not in this model's vocabulary of 320 tokens."),
        ({"token_ids": (-1,)}, "Token id -1 is not in"),
        ({"token_ids": (5,) * 256}, "The prompt has 256 tokens, but the context of the model allows 256"),
        ({"text": "x" * 2000}, "tokens, but the context of the model allows 256"),
        ({"messages": (Message("wizard", "hello"),)}, "the role 'wizard'"),
    ],
    ids=["empty", "foreign", "negative", "no-room", "too-long", "role"],
)
def test_refusals_leave_nothing_behind(engine: Engine, asked: dict[str, Any], sentence: str) -> None:
    engine.submit(greedy("other", PROMPT, 2))
    with pytest.raises(UsageError, match=sentence):
        engine.submit(Request(request_id="a", **asked))
    assert [end.request_id for output in run(engine) for end in output.finished] == ["other"]


def test_ids_that_only_the_tokenizer_knows_are_refused(tmp_path: Path) -> None:
    """One foreign id would break the step of everybody."""
    engine = tiny_engine(chat_gguf(tiny_chat_model(vocab_size=270), tmp_path / "small.gguf"))
    text = "the quick brown fox"
    assert max(encode(engine, text)) >= 270
    with pytest.raises(RequestError, match="not in this model's vocabulary of 270 tokens"):
        engine.submit(Request(request_id="a", text=text))
    assert not engine.has_work


def test_a_prompt_with_room_for_one_token(engine: Engine) -> None:
    end = end_of(run(engine, greedy("a", [5] * 255, 10)))
    assert (end.new_tokens, end.reason) == (1, FinishReason.LENGTH)


# --- cancel ---


def test_cancelling_nobody_says_nothing(engine: Engine) -> None:
    assert engine.cancel("nobody") is None
    run(engine, greedy("a", PROMPT, 2))
    assert engine.cancel("a") is None, "it has ended"


def test_cancelling_twice_is_cancelling_once(engine: Engine) -> None:
    engine.submit(greedy("a", PROMPT, 5))
    engine.step()
    first = engine.cancel("a")
    assert first is not None
    assert first.reason is FinishReason.CANCELLED
    assert engine.cancel("a") is None


def small_engine(gguf: Path) -> Engine:
    """Two slots and 17 blocks: there is always somebody waiting, chunks are needed, and long answers preempt."""
    return tiny_engine(gguf, num_kv_blocks=17, max_num_seqs=2, max_num_batched_tokens=32)


@pytest.mark.parametrize("state", ["waiting", "in-the-prompt", "answering", "preempted"])
def test_a_cancel_in_each_state_leaves_the_others_alone(gguf: Path, state: str) -> None:
    undisturbed = {
        end.request_id: tokens(outputs, end.request_id)
        for outputs in [run(small_engine(gguf), *long_requests())]
        for output in outputs
        for end in output.finished
    }
    engine = small_engine(gguf)
    for request in long_requests():
        engine.submit(request)
    outputs, victim = [], None
    while victim is None:
        outputs.append(engine.step())
        victim = find_victim(engine, state)
    said = tokens(outputs, victim)
    end = engine.cancel(victim)
    engine.check_integrity()
    assert end is not None
    assert (end.reason, end.new_tokens) == (FinishReason.CANCELLED, len(said))
    assert (end.first_step is None) == (not said) == (end.ttft_s is None)
    outputs += run(engine)
    assert tokens(outputs, victim) == said == undisturbed[victim][: len(said)]
    for request_id in undisturbed.keys() - {victim}:
        assert tokens(outputs, request_id) == undisturbed[request_id]
    assert engine._scheduler.pool.num_used == 0


def long_requests() -> list[Request]:
    lengths = {"a": 70, "b": 90, "c": 40, "d": 17}
    return [greedy(name, [(31 * length + at) % VOCAB for at in range(length)], 90) for name, length in lengths.items()]


def find_victim(engine: Engine, state: str) -> str | None:
    """Somebody who is in this state now."""
    running, waiting = engine._scheduler.running, engine._scheduler.waiting
    found = {
        "waiting": [each for each in waiting if not each.preemptions],
        "in-the-prompt": [each for each in running if 0 < each.num_computed < each.num_prompt_tokens],
        "answering": [each for each in running if each.num_new_tokens > 5],
        "preempted": [each for each in waiting if each.preemptions],
    }[state]
    return found[0].request_id if found else None


def test_cancelling_all_ends_every_open_request(engine: Engine) -> None:
    for request in mixed_requests():
        engine.submit(request)
    engine.step()
    ended = engine.cancel_all()
    assert [end.request_id for end in ended] == list("abcdef")
    assert {end.reason for end in ended} == {FinishReason.CANCELLED}
    assert engine.cancel_all() == ()


def test_a_cancelled_prompt_stays_as_a_prefix(engine: Engine) -> None:
    engine.submit(greedy("a", PROMPT * 4, 20))
    engine.step()
    engine.cancel("a")
    assert end_of(run(engine, greedy("b", PROMPT * 4, 2)), "b").cached_tokens == 32


# --- draws ---


def drawn(engine: Engine, name: str, seed: int | None) -> Request:
    sampling = SamplingParams(temperature=1.2, seed=seed, max_tokens=20, ignore_eos=True)
    return Request(request_id=name, token_ids=tuple(PROMPT), sampling=sampling)


def test_a_seed_means_the_same_answer_in_any_company(engine: Engine) -> None:
    alone = tokens(run(engine, drawn(engine, "a", 5)), "a")
    outputs = run(engine, *mixed_requests()[1:], drawn(engine, "a", 5), drawn(engine, "g", 6))
    assert tokens(outputs, "a") == alone
    assert tokens(outputs, "g") != alone


def test_without_a_seed_answers_differ(engine: Engine) -> None:
    outputs = run(engine, *(drawn(engine, name, None) for name in "abc"))
    assert len({tuple(tokens(outputs, name)) for name in "abc"}) == 3


# --- loading and closing ---


def test_what_is_loaded(engine: Engine, gguf: Path) -> None:
    info = engine.info
    model = tiny_chat_model(max_position_embeddings=1024)
    assert info.num_parameters == model.num_parameters()
    assert info.weights_bytes == 4 * info.num_parameters
    assert (info.num_blocks, info.block_size_tokens, info.max_model_len_tokens) == (64, 16, 256)
    assert (info.dtype, info.device, info.attention) == ("float32", "CPU, 1 thread", "gather + SDPA")
    assert info.block_bytes == 2 * 2 * 2 * 16 * 16 * 4, "K and V, two layers, two heads of 16, 16 tokens, 4 bytes"


def test_progress_goes_from_nothing_to_nearly_all(gguf: Path) -> None:
    stages = []
    Engine.load(tiny_config(gguf), stages.append).close()
    fractions = [stage.fraction for stage in stages]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert 0.9 < fractions[-1] <= 1.0
    assert [stage.stage for stage in stages if "layer" in stage.stage] == [
        "Reading weights, layer 1 of 2",
        "Reading weights, layer 2 of 2",
    ]


def test_closing_gives_every_tensor_back(gguf: Path) -> None:
    engine = tiny_engine(gguf)
    engine.submit(greedy("a", PROMPT, 20))
    engine.step()
    runner = engine._model.runner
    held = [weakref.ref(each) for each in (runner._cache, runner._decoder, runner._decoder._embedding)]
    del runner
    gc.disable()
    try:
        engine.close()
        assert [reference() for reference in held] == [None] * 3
    finally:
        gc.enable()
