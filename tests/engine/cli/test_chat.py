"""`kvscope chat` on a tiny model: what it prints is what the engine says."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cli import chat as chat_module
from engine.cli.chat import answer, converse
from engine.errors import EngineError
from engine.events import FinishReason, RequestFinished, TextDelta
from engine.llm import LLM
from engine.requests import Message, SamplingParams
from tests.engine.cli.conftest import Terminal
from tests.fakes.engine import model_info
from tests.fakes.tiny_model import tiny_config

OPTIONS = ("--dtype", "float32", "--threads", "1", "--temperature", "0", "--max-tokens", "12")
SAMPLING = SamplingParams(temperature=0.0, top_p=0.95, max_tokens=12)


def said_by_the_engine(gguf: Path, *messages: Message) -> Message:
    ends: list[RequestFinished] = []
    with LLM(tiny_config(gguf)) as llm:
        deltas = list(llm.deltas(messages, SAMPLING, ends.append))
    ids = [token_id for delta in deltas for token_id in delta.token_ids]
    if ends[0].reason is FinishReason.EOS:
        ids.pop()
    return Message("assistant", "".join(delta.text for delta in deltas), tuple(ids))


def test_one_answer(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("chat", "Hello", "-m", tiny_gguf, "--system", "Be brief", *OPTIONS)
    assert done.returncode == 0, done.stderr
    expected = said_by_the_engine(tiny_gguf, Message("system", "Be brief"), Message("user", "Hello"))
    assert done.stdout == expected.content + "\n"
    assert done.stderr == "", "progress is for terminals"


def test_a_conversation_from_stdin_remembers_its_turns(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("chat", "-m", tiny_gguf, *OPTIONS, stdin="Hello\nAnd then\n\nnever read\n")
    assert done.returncode == 0, done.stderr
    first = said_by_the_engine(tiny_gguf, Message("user", "Hello"))
    second = said_by_the_engine(tiny_gguf, Message("user", "Hello"), first, Message("user", "And then"))
    assert done.stdout == f"{first.content}\n{second.content}\n"
    assert second != first


class Llm:
    """Says one thing and ends it as told."""

    def __init__(self, end: RequestFinished, *, interrupts: bool = False) -> None:
        self.asked: list[tuple[Message, ...]] = []
        self.info = model_info()
        self._end = end
        self._interrupts = interrupts

    def deltas(self, messages: tuple[Message, ...], _sampling: object, on_finish: object) -> Iterator[TextDelta]:
        self.asked.append(messages)
        yield TextDelta("a", (5,), "half ")
        if self._interrupts:
            raise KeyboardInterrupt
        yield TextDelta("a", (6,), "an ")
        yield TextDelta("a", (1,), "answer")  # held back until the end token
        on_finish(self._end)  # type: ignore[operator]


def end(reason: FinishReason, message: str = "") -> RequestFinished:
    return RequestFinished(
        request_id="a", reason=reason, prompt_tokens=20, new_tokens=5, cached_tokens=16, first_step=1, finish_step=5,
        ttft_s=0.25, decode_s=0.5, message=message,
    )  # fmt: skip


def test_a_full_cache_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    llm = Llm(end(FinishReason.CAPACITY, "The answer filled the whole KV cache."))
    expected = Message("assistant", "half an answer", (5, 6, 1))
    assert answer(llm, (), SAMPLING) == expected  # type: ignore[arg-type]
    said = capsys.readouterr()
    assert said.out == "half an answer\n"
    assert said.err == "The answer filled the whole KV cache.\n"


def test_figures_are_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module.sys.stderr, "isatty", lambda: True, raising=False)
    answer(Llm(end(FinishReason.EOS)), (), SAMPLING)  # type: ignore[arg-type]
    err = capsys.readouterr().err
    assert "8.0 tok/s · first token 0.25 s · 5 tokens · 16 of 20 prompt tokens cached" in err


def talk(llm: Llm, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    monkeypatch.setattr(chat_module.sys, "stdin", io.StringIO(lines))
    converse(llm, (), SAMPLING)  # type: ignore[arg-type]


def test_a_conversation_goes_on_with_the_ids_that_were_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Llm(end(FinishReason.EOS))
    talk(llm, monkeypatch, "one\ntwo\n")
    said = Message("assistant", "half an answer", (5, 6))
    assert llm.asked == [(Message("user", "one"),), (Message("user", "one"), said, Message("user", "two"))]


def test_an_interrupted_answer_stays_in_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Llm(end(FinishReason.CANCELLED), interrupts=True)
    talk(llm, monkeypatch, "one\ntwo\n")
    said = Message("assistant", "half ", (5,))
    assert llm.asked[1] == (Message("user", "one"), said, Message("user", "two"))


def test_interrupting_a_single_answer_ends_the_command() -> None:
    with pytest.raises(KeyboardInterrupt):
        answer(Llm(end(FinishReason.CANCELLED), interrupts=True), (), SAMPLING)  # type: ignore[arg-type]


def test_an_answer_that_ends_in_an_error_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match="The scores overflowed"):
        answer(Llm(end(FinishReason.ERROR, "The scores overflowed.")), (), SAMPLING)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "half an answer\n"


def test_log_probabilities_follow_the_answer(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("chat", "Hello", "-m", tiny_gguf, *OPTIONS, "--logprobs", "2", "--repetition-penalty", "1.2")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if re.match(r" *-\d+\.\d{4} ['\"]", line)]
    assert 1 <= len(lines) <= 12
    assert all(len(re.findall(r"-\d+\.\d{4}", line)) == 3 for line in lines), "the chosen one and the two best"


def test_an_answer_ends_before_a_stop_string(terminal: Terminal, tiny_gguf: Path) -> None:
    whole = said_by_the_engine(tiny_gguf, Message("user", "Hello")).content
    stop = whole[len(whole) // 2 :][:2]
    done = terminal.types("chat", "Hello", "-m", tiny_gguf, *OPTIONS, "--stop", "nowhere", "--stop", stop)
    assert done.stdout == whole[: whole.index(stop)] + "\n"
