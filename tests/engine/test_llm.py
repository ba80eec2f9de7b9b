"""The engine for callers that wait."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import RequestError
from engine.events import FinishReason, LoadProgress, RequestFinished
from engine.llm import LLM
from engine.requests import Message, Request, SamplingParams
from engine.weights import random as random_weights
from tests.fakes.reference import assert_greedy
from tests.fakes.tiny_model import chat_gguf, greedy, tiny_chat_model, tiny_config

PROMPTS = [[50, 60, 70], list(range(100, 140)), [9]]
MESSAGES = (Message("user", "Hello there"),)
SAMPLING = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def llm(gguf: Path) -> Iterator[LLM]:
    with LLM(tiny_config(gguf)) as llm:
        yield llm


def test_generate_gives_exactly_what_was_asked_in_order(llm: LLM) -> None:
    answers = llm.generate(PROMPTS, [5, 1, 9])
    assert [len(answer) for answer in answers] == [5, 1, 9]
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert_greedy(tiny_chat_model(), prompt, answer)
    assert llm.generate(PROMPTS, [5, 1, 9]) == answers


def test_stream_gives_the_answer_piece_by_piece(llm: LLM) -> None:
    ends: list[RequestFinished] = []
    pieces = list(llm.stream(MESSAGES, SAMPLING, ends.append))
    assert all(pieces)
    (end,) = ends
    assert (end.reason, end.new_tokens) == (FinishReason.LENGTH, 12)
    assert "".join(llm.stream(MESSAGES, SAMPLING, ends.append)) == "".join(pieces)


def test_who_stops_listening_stops_the_work(llm: LLM) -> None:
    stream = llm.stream(MESSAGES, SamplingParams(temperature=0.0), lambda _end: None)
    next(stream)
    assert llm._engine.has_work
    stream.close()
    assert not llm._engine.has_work
    assert [len(answer) for answer in llm.generate(PROMPTS, [2, 2, 2])] == [2, 2, 2]


@pytest.mark.parametrize("trouble", ["refused", "broken", "left"])
def test_every_iterator_ends(llm: LLM, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """Whatever ends a run ends all of its requests, and the next one knows nothing of them."""
    requests = [greedy("a", PROMPTS[0], 8), greedy("b", PROMPTS[1] * (20 if trouble == "refused" else 1), 8)]
    outputs = llm.run(requests)
    if trouble == "refused":
        with pytest.raises(RequestError, match="the context of the model allows 256"):
            next(outputs)
    else:
        next(outputs)
    if trouble == "broken":
        with monkeypatch.context() as patch:
            patch.setattr(llm._engine._model.runner, "run", lambda _batch: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                next(outputs)
    if trouble == "left":
        outputs.close()  # type: ignore[attr-defined]
    assert list(outputs) == []
    assert not llm._engine.has_work
    assert [len(answer) for answer in llm.generate(PROMPTS, [5, 1, 9])] == [5, 1, 9]
    llm._engine.check_integrity()


def test_run_serves_all_requests_together(llm: LLM) -> None:
    outputs = list(llm.run([greedy("a", PROMPTS[0], 4), greedy("b", PROMPTS[1], 6)]))
    assert len(outputs) == 6
    assert [end.request_id for output in outputs for end in output.finished] == ["a", "b"]


def test_progress_is_passed_on(gguf: Path) -> None:
    seen: list[LoadProgress] = []
    with LLM(tiny_config(gguf), seen.append) as llm:
        assert llm.info.name == "tiny"
    assert seen


@pytest.fixture
def small_shape(monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    """The shape of a real model, with fewer and thinner layers."""
    thin = replace(
        random_weights.SHAPES["qwen3-0.6b"], num_layers=2, hidden_size=32, intermediate_size=48, num_heads=4,
        num_kv_heads=2, head_dim=8, vocab_size=500,
    )  # fmt: skip
    monkeypatch.setitem(random_weights.SHAPES, "thin", thin)
    return EngineConfig(random_weights="thin", device="cpu", dtype="float32", threads=1, num_kv_blocks=40)


def test_random_weights_run_without_a_tokenizer(small_shape: EngineConfig) -> None:
    with LLM(small_shape) as llm:
        assert [len(answer) for answer in llm.generate(PROMPTS, [3, 4, 5])] == [3, 4, 5]
        with pytest.raises(RequestError, match="random weights and no tokenizer"):
            next(llm.stream(MESSAGES, SAMPLING, lambda _end: None))
        with pytest.raises(RequestError, match="random weights and no tokenizer"):
            next(llm.run([Request(request_id="a", text="hello")]))


def test_random_weights_follow_the_dtype(small_shape: EngineConfig) -> None:
    engine = Engine.load(small_shape)
    decoder = engine._model.runner._decoder
    assert decoder._embedding.dtype is torch.float32
    assert engine.info.num_parameters == random_weights.SHAPES["thin"].num_parameters
    engine.close()
