"""Conversations on the real engine: a later turn computes what is new, in whole blocks, and nothing else."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.events import FinishReason, RequestFinished, StepOutput
from engine.requests import Message, Request, SamplingParams
from tests.fakes.scripted_decoder import say
from tests.fakes.tiny_model import chat_gguf, tiny_chat_model, tiny_engine
from tests.fakes.tiny_tokenizer import CONTROL_TOKENS

BLOCK = 16
EOS = 1


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def engine(gguf: Path) -> Iterator[Engine]:
    engine = tiny_engine(gguf, max_num_batched_tokens=64)
    yield engine
    engine.check_integrity()
    engine.close()


class Conversation:
    """Asks one engine, keeps what it says, and counts what its prompts cost."""

    def __init__(self, engine: Engine, *, keeps_ids: bool = True) -> None:
        self.engine = engine
        self.keeps_ids = keeps_ids
        self.messages: list[Message] = []
        self.end: RequestFinished | None = None
        self.prefill_tokens = 0
        self._numbers = itertools.count()

    def ask(self, prompt: str, script: list[int], *, stop_after: int | None = None) -> None:
        """The model answers with `script`; a user stops it after so many tokens."""
        self.messages.append(Message("user", prompt))
        say(self.engine, script, prompt_tokens=len(self._prompt()))
        outputs = self._run(stop_after)
        assert self.end is not None
        ids = [token_id for output in outputs for delta in output.deltas for token_id in delta.token_ids]
        text = "".join(delta.text for output in outputs for delta in output.deltas)
        if self.end.reason is FinishReason.EOS:
            ids.pop()
        self.messages.append(Message("assistant", text, tuple(ids) if self.keeps_ids else ()))
        self.prefill_tokens = sum(output.stats.prefill_tokens for output in outputs)

    def _prompt(self) -> list[int]:
        template = self.engine._model.chat_template
        assert template is not None
        return template.render(self.messages)

    def _run(self, stop_after: int | None) -> list[StepOutput]:
        request_id = f"{id(self)}-{next(self._numbers)}"
        sampling = SamplingParams(temperature=0.0, max_tokens=60)
        self.engine.submit(Request(request_id=request_id, messages=tuple(self.messages), sampling=sampling))
        outputs: list[StepOutput] = []
        while self.engine.has_work:
            outputs.append(self.engine.step())
            for end in outputs[-1].finished:
                self.end = end
            if stop_after is not None and sum(len(output.deltas) for output in outputs) == stop_after:
                self.end = self.engine.cancel(request_id)
        return outputs

    @property
    def num_cached(self) -> int:
        assert self.end is not None
        return self.end.cached_tokens

    @property
    def num_computed(self) -> int:
        """Tokens of the prompt and the answer that are in the cache after the last turn."""
        assert self.end is not None
        # The keys and values of the newest token are never computed.
        return self.end.prompt_tokens + self.end.new_tokens - 1


def letters(text: str) -> list[int]:
    """One token per byte: a tokenizer would merge them."""
    alphabet = "".join(map(chr, range(0x21, 0x7F)))
    place = {character: len(CONTROL_TOKENS) + at for at, character in enumerate(alphabet)}
    return [place[character] for character in text]


ANSWER = letters("Thequickbrownfoxjumpsoverthelazydog.")


@pytest.mark.parametrize("length", range(1, len(ANSWER) + 1, 5))
@pytest.mark.parametrize("stopped", [False, True], ids=["complete", "stopped"])
def test_the_next_turn_computes_only_what_is_new(engine: Engine, length: int, stopped: bool) -> None:
    talk = Conversation(engine)
    talk.ask(
        "Tell me of the fox", ANSWER if stopped else [*ANSWER[:length], EOS], stop_after=length if stopped else None
    )
    assert talk.end is not None
    assert talk.end.reason is (FinishReason.CANCELLED if stopped else FinishReason.EOS)
    for _ in range(3):
        expected = talk.num_computed // BLOCK * BLOCK
        talk.ask("And then?", [*ANSWER, EOS])
        assert talk.end is not None
        assert talk.num_cached == expected
        assert talk.prefill_tokens == talk.end.prompt_tokens - expected


def test_without_ids_the_answer_is_computed_again(engine: Engine) -> None:
    """What the ids are kept for: the same conversation as text finds its first prompt at most."""
    talk = Conversation(engine, keeps_ids=False)
    talk.ask("Tell me of the fox", [*ANSWER, EOS])
    assert talk.end is not None
    first_prompt, computed = talk.end.prompt_tokens, talk.num_computed
    talk.ask("And then?", [*ANSWER, EOS])
    assert talk.num_cached <= first_prompt < computed // BLOCK * BLOCK


def test_two_conversations_with_the_same_words_and_other_ids_keep_apart(engine: Engine) -> None:
    template, tokenizer = engine._model.chat_template, engine._model.tokenizer
    assert template is not None
    assert tokenizer is not None
    first, second = Conversation(engine), Conversation(engine)
    first.ask("Tell me of the fox", [*ANSWER, EOS])
    second.ask("Tell me of the fox", [*tokenizer.encode(tokenizer.decode(ANSWER)), EOS])
    assert first.messages[-1].content == second.messages[-1].content
    assert first.messages[-1].token_ids != second.messages[-1].token_ids
    for talk in (first, second):
        expected = talk.num_computed // BLOCK * BLOCK
        talk.ask("And then?", [EOS])
        assert talk.num_cached == expected


def test_a_model_has_an_identity_that_its_copy_shares(gguf: Path, tmp_path: Path) -> None:
    def identity(path: Path, **changes: object) -> str:
        engine = tiny_engine(path, **changes)
        engine.close()
        return engine.info.identity

    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / gguf.name
    copy.write_bytes(gguf.read_bytes())
    other = chat_gguf(tiny_chat_model(num_hidden_layers=1), tmp_path / "other.gguf")
    assert identity(gguf) == identity(copy) == identity(copy, max_model_len=128) != ""
    assert identity(other) != identity(gguf)
