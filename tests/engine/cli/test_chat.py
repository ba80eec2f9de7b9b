"""`kvscope chat` on a tiny model: what it prints is what the engine says."""

from pathlib import Path

import pytest

from engine.cli import chat as chat_module
from engine.cli.chat import answer
from engine.events import FinishReason, RequestFinished
from engine.llm import LLM
from engine.requests import Message, SamplingParams
from tests.engine.cli.conftest import Terminal
from tests.fakes.tiny_model import tiny_config

OPTIONS = ("--dtype", "float32", "--threads", "1", "--temperature", "0", "--max-tokens", "12")
SAMPLING = SamplingParams(temperature=0.0, top_p=0.95, max_tokens=12)


def said_by_the_engine(gguf: Path, *messages: Message) -> str:
    with LLM(tiny_config(gguf)) as llm:
        return "".join(llm.stream(messages, SAMPLING, lambda _end: None))


def test_one_answer(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("chat", "Hello", "-m", tiny_gguf, "--system", "Be brief", *OPTIONS)
    assert done.returncode == 0, done.stderr
    expected = said_by_the_engine(tiny_gguf, Message("system", "Be brief"), Message("user", "Hello"))
    assert done.stdout == expected + "\n"
    assert done.stderr == "", "progress is for terminals"


def test_a_conversation_from_stdin_remembers_its_turns(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("chat", "-m", tiny_gguf, *OPTIONS, stdin="Hello\nAnd then\n\nnever read\n")
    assert done.returncode == 0, done.stderr
    first = said_by_the_engine(tiny_gguf, Message("user", "Hello"))
    second = said_by_the_engine(
        tiny_gguf, Message("user", "Hello"), Message("assistant", first), Message("user", "And then")
    )
    assert done.stdout == f"{first}\n{second}\n"
    assert second != first


class Llm:
    """Says one thing and ends it as told."""

    def __init__(self, end: RequestFinished) -> None:
        self._end = end

    def stream(self, _messages: object, _sampling: object, on_finish: object) -> object:
        yield "half "
        yield "an answer"
        on_finish(self._end)  # type: ignore[operator]


def end(reason: FinishReason, message: str = "") -> RequestFinished:
    return RequestFinished(
        request_id="a", reason=reason, prompt_tokens=20, new_tokens=5, cached_tokens=16, first_step=1, finish_step=5,
        ttft_s=0.25, decode_s=0.5, message=message,
    )  # fmt: skip


def test_a_full_cache_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    llm = Llm(end(FinishReason.CAPACITY, "The answer filled the whole KV cache."))
    assert answer(llm, (), SAMPLING) == "half an answer"  # type: ignore[arg-type]
    said = capsys.readouterr()
    assert said.out == "half an answer\n"
    assert said.err == "The answer filled the whole KV cache.\n"


def test_figures_are_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module.sys.stderr, "isatty", lambda: True, raising=False)
    answer(Llm(end(FinishReason.EOS)), (), SAMPLING)  # type: ignore[arg-type]
    err = capsys.readouterr().err
    assert "8.0 tok/s · first token 0.25 s · 5 tokens · 16 of 20 prompt tokens cached" in err
