"""Sampling through the whole engine: penalties over preemptions, log probabilities, failures of one row, held text."""

import logging
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import answer as answer_module
from engine.engine import Engine
from engine.errors import RequestError
from engine.events import FinishReason, RequestFinished, StepOutput, TokenLogprobs
from engine.requests import Request, SamplingParams
from engine.runner.sampler import NOT_FINITE
from tests.fakes.reference import answer_logits
from tests.fakes.scripted_decoder import say
from tests.fakes.tiny_model import VOCAB, chat_gguf, greedy, tiny_chat_model, tiny_engine

PROMPT = list(range(50, 60))
POISON = 300  # a token that no prompt of these tests has unless it is meant to
NAN = float("nan")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def start(gguf: Path) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def start(**changes: Any) -> Engine:
        engines.append(tiny_engine(gguf, **changes))
        return engines[-1]

    yield start
    for engine in engines:
        assert not engine.has_work
        engine.check_integrity()
        assert engine._scheduler.pool.num_used == 0, "a block was leaked"
        engine.close()


def run(engine: Engine, *requests: Request) -> list[StepOutput]:
    for request in requests:
        engine.submit(request)
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
        engine.check_integrity()
    return outputs


def tokens(outputs: list[StepOutput], request_id: str) -> list[int]:
    return [
        token
        for output in outputs
        for delta in output.deltas
        if delta.request_id == request_id
        for token in delta.token_ids
    ]


def ends(outputs: list[StepOutput]) -> dict[str, RequestFinished]:
    return {end.request_id: end for output in outputs for end in output.finished}


def asked(name: str, prompt: list[int], count: int, **sampling: Any) -> Request:
    return greedy(name, prompt, count, **sampling)


# --- penalties ---


@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 1.5},
        {"frequency_penalty": 0.8, "presence_penalty": 0.5},
        {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "seed": 4},
    ],
    ids=str,
)
def test_penalties_outlive_preemptions(start: Callable[..., Engine], sampling: dict[str, Any]) -> None:
    prompts = {"a": 70, "b": 90, "c": 40, "d": 17}
    requests = [
        asked(name, [(31 * size + at) % 250 for at in range(size)], 60, **sampling) for name, size in prompts.items()
    ]
    alone = {request.request_id: tokens(run(start(), request), request.request_id) for request in requests}
    outputs = run(start(num_kv_blocks=17, max_num_seqs=3, max_num_batched_tokens=32), *requests)
    assert sum(end.preemptions for end in ends(outputs).values()) > 0
    assert {name: tokens(outputs, name) for name in alone} == alone


def test_a_penalty_changes_the_answer_and_forbids_repeats(start: Callable[..., Engine]) -> None:
    engine = start()
    say(engine, [60] * 9, prompt_tokens=len(PROMPT))
    # 10 for the token of the script, 0 for all others: after six times 2 off it is below them.
    said = tokens(run(engine, asked("a", PROMPT, 9, frequency_penalty=2.0)), "a")
    assert said[:5] == [60] * 5
    assert 60 not in said[6:]


@pytest.mark.parametrize("bias", [((VOCAB, 1.0),), ((5, 1.0), (10_000, -1.0))])
def test_a_bias_for_a_foreign_token_is_refused(
    start: Callable[..., Engine], bias: tuple[tuple[int, float], ...]
) -> None:
    engine = start()
    with pytest.raises(RequestError, match=r"Token id \d+ is not in this model's vocabulary of 320 tokens"):
        engine.submit(asked("a", PROMPT, 3, logit_bias=bias))
    assert not engine.has_work


def test_a_bias_can_force_and_forbid(start: Callable[..., Engine]) -> None:
    engine = start()
    say(engine, [60] * 9, prompt_tokens=len(PROMPT))
    assert tokens(run(engine, asked("a", PROMPT, 4, logit_bias=((77, 100.0),))), "a") == [77] * 4
    assert 60 not in tokens(run(engine, asked("a", PROMPT, 4, logit_bias=((60, -100.0),), temperature=1.0)), "a")


# --- log probabilities ---


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_log_probabilities_are_the_models_at_each_place(start: Callable[..., Engine], temperature: float) -> None:
    """Against transformers on the same prefix; in a batch, chunked, with penalties that must not show."""
    engine = start(max_num_batched_tokens=8, max_num_seqs=2)
    sampling = {"temperature": temperature, "logprobs": 3, "repetition_penalty": 1.2, "seed": 3}
    outputs = run(engine, asked("a", PROMPT, 8, **sampling), asked("b", PROMPT[::-1], 8))
    said = tokens(outputs, "a")
    deltas = [delta for output in outputs for delta in output.deltas]
    assert all(delta.logprobs == () for delta in deltas if delta.request_id == "b")
    given: list[TokenLogprobs] = [each for delta in deltas for each in delta.logprobs]
    expected = answer_logits(tiny_chat_model(), PROMPT, said).log_softmax(-1)
    assert [each.chosen.token_id for each in given] == said
    for each, row in zip(given, expected, strict=True):
        assert each.chosen.logprob == pytest.approx(float(row[each.chosen.token_id]), abs=1e-4)
        values, ids = row.topk(3)
        assert [token.token_id for token in each.top] == ids.tolist()
        assert [token.logprob for token in each.top] == pytest.approx(values.tolist(), abs=1e-4)


# --- scores that are not finite ---


def poison(engine: Engine) -> None:
    """From now on the model computes NaN keys, values and scores wherever it reads POISON."""
    decoder = engine._model.runner._decoder
    decoder._embedding = decoder._embedding.clone()
    decoder._embedding[POISON] = NAN


def healthy_requests() -> list[Request]:
    return [
        asked("greedy", PROMPT * 3, 40),
        asked("drawn", PROMPT[::-1], 40, temperature=1.0, seed=8, logit_bias=((POISON, -100.0),)),
    ]


def blocks_with_nan(engine: Engine) -> set[int]:
    cache = engine._model.runner._cache
    broken: set[int] = set()
    for index in range(2):
        for data in cache.layer(index):
            broken |= set((~data.isfinite()).flatten(1).any(dim=1).nonzero().flatten().tolist())
    return broken


@pytest.mark.parametrize("where", ["first-chunk", "middle-chunk", "last-token", "answer"])
def test_a_poisoned_request_ends_alone_and_leaves_nothing(start: Callable[..., Engine], where: str) -> None:
    """Few blocks, so that the others get the blocks of the poisoned one: what it wrote must not show in their rows."""
    expected = {each.request_id: tokens(run(start(), each), each.request_id) for each in healthy_requests()}
    assert not any(POISON in said for said in expected.values())
    engine = start(num_kv_blocks=16, max_num_seqs=3, max_num_batched_tokens=16)
    poison(engine)
    prompt = [(3 * at) % 250 for at in range(70)]
    place = {"first-chunk": 2, "middle-chunk": 30, "last-token": 69, "answer": None}[where]
    if place is not None:
        prompt[place] = POISON
    bias = ((POISON, 100.0),) if place is None else ()
    for request in (healthy_requests()[0], asked("bad", prompt, 20, logit_bias=bias), healthy_requests()[1]):
        engine.submit(request)
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
        engine.check_integrity()
        assert blocks_with_nan(engine) == set()
    end = ends(outputs)["bad"]
    assert (end.reason, end.message) == (FinishReason.ERROR, NOT_FINITE)
    assert end.new_tokens == len(tokens(outputs, "bad")) == (1 if place is None else 0)
    assert {name: tokens(outputs, name) for name in expected} == expected
    assert {end.reason for name, end in ends(outputs).items() if name != "bad"} == {FinishReason.LENGTH}
    again = ends(run(engine, asked("again", prompt, 1)))["again"]
    if place is None:
        assert again.cached_tokens == 0, "what the failed one computed is no prefix"
    else:
        assert again.reason is FinishReason.ERROR


def test_a_prefix_that_others_use_outlives_a_failure(start: Callable[..., Engine]) -> None:
    engine = start()
    poison(engine)
    shared = list(range(100, 148))
    outputs = run(engine, asked("first", shared, 1))
    for request in (asked("other", [*shared, 7], 30), asked("bad", [*shared, POISON], 5)):
        engine.submit(request)
    outputs.append(engine.step())
    assert ends(outputs)["bad"].reason is FinishReason.ERROR
    outputs += run(engine)
    assert ends(outputs)["other"].reason is FinishReason.LENGTH
    assert ends(outputs)["other"].cached_tokens == 48
    assert ends(run(engine, asked("later", [*shared, 8], 2)))["later"].cached_tokens == 48


class BrokenRows:
    """Makes the scores of chosen rows of a step not finite, or the sampling of a row raise."""

    def __init__(self, engine: Engine, value: float) -> None:
        self._decoder = engine._model.runner._decoder
        self._value = value
        self.step = 0

    def forward(self, *inputs: Any) -> Tensor:
        self.step += 1
        return self._decoder.forward(*inputs)

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self._decoder.logits(hidden)
        if self.step == 4:
            scores[1] = self._value
        return scores


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")], ids=str)
def test_broken_scores_end_one_answer_in_a_mixed_batch(start: Callable[..., Engine], value: float) -> None:
    requests = [
        asked("a", PROMPT, 12),
        asked("b", PROMPT[:5], 12, temperature=1.0, seed=1, stop=("nowhere",)),
        asked("c", PROMPT[3:], 12, temperature=0.8, top_p=0.9, seed=2),
    ]
    undisturbed = run(start(), *requests)
    engine = start()
    engine._model.runner._decoder = BrokenRows(engine, value)  # type: ignore[assignment]
    outputs = run(engine, *requests)
    end = ends(outputs)["b"]
    assert (end.reason, end.new_tokens, end.message) == (FinishReason.ERROR, 3, NOT_FINITE)
    for name in "ac":
        assert tokens(outputs, name) == tokens(undisturbed, name)
    assert tokens(outputs, "b") == tokens(undisturbed, "b")[:3]


def test_a_broken_token_behind_a_window_ends_its_request_too(start: Callable[..., Engine]) -> None:
    """The last token's scores are fine, but keys and values of another one would become a prefix."""
    engine = start()
    forward = engine._model.runner._decoder.forward

    def break_a_token(*inputs: Any) -> Tensor:
        hidden = forward(*inputs)
        if len(hidden) > 40:
            hidden[20] = NAN
        return hidden

    engine._model.runner._decoder.forward = break_a_token  # type: ignore[method-assign]
    prompt = list(range(100, 135))
    outputs = run(engine, asked("bad", prompt, 3), asked("good", PROMPT, 3))
    assert (ends(outputs)["bad"].reason, ends(outputs)["good"].reason) == (FinishReason.ERROR, FinishReason.LENGTH)
    assert tokens(outputs, "bad") == []
    assert ends(run(engine, asked("again", prompt, 3)))["again"].cached_tokens == 0


# --- what was held back ---


def byte_tokens(engine: Engine, text: str) -> list[int]:
    tokenizer = engine._model.tokenizer
    assert tokenizer is not None
    by_byte = {tokenizer.token_bytes(token_id): token_id for token_id in range(4, 260)}
    return [by_byte[bytes([byte])] for byte in text.encode()]


def shown_until(engine: Engine, script: list[int], **sampling: Any) -> str:
    """The text of the first tokens of a scripted answer that goes on."""
    say(engine, script, prompt_tokens=len(PROMPT))
    engine.submit(asked("a", PROMPT, 100, **sampling))
    return "".join(delta.text for _ in script for delta in engine.step().deltas)


def test_a_cancel_gives_what_was_held_back(start: Callable[..., Engine]) -> None:
    engine = start()
    assert shown_until(engine, byte_tokens(engine, "The EN"), stop=("END",)) == "The "
    end = engine.cancel("a")
    assert end is not None
    assert (end.reason, end.text) == (FinishReason.CANCELLED, "EN")


def test_a_cancel_inside_a_character_gives_one_mark(start: Callable[..., Engine]) -> None:
    engine = start()
    assert shown_until(engine, byte_tokens(engine, "a 世")[:-1]) == "a "
    (end,) = engine.cancel_all()
    assert end.text == "\N{REPLACEMENT CHARACTER}"


def test_a_cancel_with_nothing_held_gives_nothing(start: Callable[..., Engine]) -> None:
    engine = start()
    assert shown_until(engine, byte_tokens(engine, "all"), stop=("END",)) == "all"
    end = engine.cancel("a")
    assert end is not None
    assert end.text == ""


def test_a_failure_gives_what_was_held_back(start: Callable[..., Engine]) -> None:
    engine = start()
    assert shown_until(engine, byte_tokens(engine, "x EN"), stop=("END",)) == "x "
    engine._model.runner._decoder.logits = lambda hidden: torch.full((len(hidden), VOCAB), NAN)  # type: ignore[method-assign]
    assert ends([engine.step()])["a"].text == "EN"


def test_a_cancel_survives_text_that_cannot_be_made(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start()
    shown_until(engine, byte_tokens(engine, "abc"))

    def fail(_self: object) -> str:
        raise ValueError("no such piece")

    monkeypatch.setattr("engine.text.detokenizer.Detokenizer.flush", fail)
    with caplog.at_level(logging.CRITICAL, logger=answer_module.__name__):
        end = engine.cancel("a")
    assert end is not None
    assert (end.reason, end.text) == (FinishReason.CANCELLED, "")


STOPS = {
    "inside-one-token": ("the quick", ("qui",), "the "),
    "across-tokens": ("stop here now", ("here",), "stop "),
    "prefix-of-another": ("say END of it", ("END of it", "END"), "say "),
    "prefix-that-goes-on": ("say ENTER", ("END", "ENTER"), "say "),
    "overlapping-itself": ("xababac", ("abac",), "xab"),
    "overlapping-each-other": ("one two three", ("two th", "wo"), "one t"),
    "several-bytes-a-character": ("ok 世界 done", ("世界",), "ok "),
    "begins-inside-a-character-run": ("🙂🙂🙃!", ("🙂🙃",), "🙂"),
    "line-ends": ("a\n\nb", ("\n\n",), "a"),
    "the-first-character": ("END", ("END",), ""),
    "the-last-character": ("all said.", (".",), "all said"),
}


@pytest.mark.parametrize("cut", ["bytes", "merges"])
@pytest.mark.parametrize("name", list(STOPS))
@pytest.mark.parametrize("exact", [True, False], ids=["at-the-limit", "before-the-limit"])
def test_no_part_of_a_stop_string_is_shown(start: Callable[..., Engine], name: str, cut: str, exact: bool) -> None:
    text, stop, before = STOPS[name]
    engine = start()
    tokenizer = engine._model.tokenizer
    assert tokenizer is not None
    script = byte_tokens(engine, text) if cut == "bytes" else tokenizer.encode(text)
    complete = min(
        count for count in range(1, len(script) + 1) if any(each in tokenizer.decode(script[:count]) for each in stop)
    )
    say(engine, script, prompt_tokens=len(PROMPT))
    outputs = run(engine, asked("a", PROMPT, complete if exact else 60, stop=stop))
    shown = [delta.text for output in outputs for delta in output.deltas]
    for so_far in accumulate(shown):
        assert before.startswith(so_far)
    end = ends(outputs)["a"]
    assert ("".join(shown), end.reason, end.text) == (before, FinishReason.STOP, "")
    assert end.new_tokens == complete


@pytest.mark.parametrize("text", ["say EN", "xaba", "ok 世", "🙂", "END"])
def test_what_never_became_a_stop_string_is_shown_at_the_limit(start: Callable[..., Engine], text: str) -> None:
    engine = start()
    script = byte_tokens(engine, text)
    say(engine, script, prompt_tokens=len(PROMPT))
    outputs = run(engine, asked("a", PROMPT, len(script), stop=("END!", "abac", "世界", "🙂🙃")))
    assert "".join(delta.text for output in outputs for delta in output.deltas) == text
    assert ends(outputs)["a"].reason is FinishReason.LENGTH


def test_a_wrong_setting_is_refused_before_anything_is_submitted() -> None:
    with pytest.raises(RequestError):
        SamplingParams(temperature=NAN)
