"""Ids that a model sampled come back in the next prompt as they are, and never say anything but the rendered text."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.requests import Message
from engine.text.chat_template import ChatTemplate
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.tiny_tokenizer import CONTROL_TOKENS, byte_level_fields, save_fields, sentence_piece_fields

KEEPING = {
    "own line": "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}",
    "same line": "{% for m in messages %}<|user|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant: {% endif %}",
    "none": None,
}
CHANGING = {
    "trimmed": "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}",
    "thoughts dropped": "{% for m in messages %}<|user|>{{ m.role }}\n"
    "{{ m.content.split('x')[-1] if m.role == 'assistant' else m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}",
    "old answers dropped": "{% for m in messages %}{% if m.role != 'assistant' or loop.revindex < 3 %}<|user|>"
    "{{ m.role }}\n{{ m.content }}<|end|>{% endif %}{% endfor %}<|user|>assistant\n",
    "other prompt": "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\nx{% endif %}",
    "twice": "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}{{ m.content }}<|end|>{% endfor %}"
    "<|user|>assistant\n",
    "newest first": "{% for m in messages | reverse %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "<|user|>assistant\n",
    "upper": "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content | upper }}<|end|>{% endfor %}"
    "<|user|>assistant\n",
}

FIRST_PLAIN_ID = len(CONTROL_TOKENS)
# Any bytes and merges in any order: hardly ever what the tokenizer would choose for the same text.
sampled = st.lists(st.integers(FIRST_PLAIN_ID, 319), min_size=1, max_size=25)
typed = st.text(st.characters(codec="utf-8"), max_size=12)


def tiny(folder: Path, template: str | None, **changes: Any) -> Tokenizer:
    return load_tokenizer(save_fields(folder / "tiny.gguf", byte_level_fields(chat_template=template, **changes)))


def shown(tokenizer: Tokenizer, ids: list[int], *, stopped: bool) -> str:
    """What a user sees of an answer; a stop leaves half a character out."""
    detokenizer = Detokenizer(tokenizer)
    text = "".join(map(detokenizer.push, ids))
    return text if stopped else text + detokenizer.flush()


def without_ids(messages: list[Message]) -> list[Message]:
    return [Message(message.role, message.content) for message in messages]


@pytest.mark.parametrize("name", KEEPING)
def test_each_prompt_begins_with_the_last_one_and_its_answer(tmp_path: Path, name: str) -> None:
    tokenizer = tiny(tmp_path, KEEPING[name], ggml__add_bos_token=True)
    template = ChatTemplate(tokenizer)

    @settings(max_examples=150)
    @given(turns=st.lists(st.tuples(typed, sampled), min_size=1, max_size=4))
    def check(turns: list[tuple[str, list[int]]]) -> None:
        messages = [Message("system", "Be brief.")]
        said: list[int] = []
        for prompt, answer in turns:
            messages.append(Message("user", prompt))
            ids = template.render(messages)
            assert ids[: len(said)] == said
            said = ids + answer
            messages.append(Message("assistant", shown(tokenizer, answer, stopped=False), tuple(answer)))
        rendered = template.render([*messages, Message("user", "And?")])
        assert rendered[: len(said)] == said

    check()


@pytest.mark.parametrize("name", [*KEEPING, *CHANGING])
def test_ids_change_neither_the_text_nor_the_control_tokens(tmp_path: Path, name: str) -> None:
    tokenizer = tiny(tmp_path, (KEEPING | CHANGING)[name])
    template = ChatTemplate(tokenizer)
    any_ids = st.lists(st.integers(-2, 325), max_size=12)
    contents = st.one_of(
        sampled.map(lambda ids: (shown(tokenizer, ids, stopped=False), ids)),
        sampled.map(lambda ids: (shown(tokenizer, ids, stopped=True), ids)),
        st.tuples(st.lists(st.sampled_from(["<|", "end", "|>", "<|end|>", "x", " ", "\n"])).map("".join), any_ids),
    )

    @settings(max_examples=100)
    @given(turns=st.lists(st.tuples(typed, contents), min_size=1, max_size=3))
    def check(turns: list[tuple[str, tuple[str, list[int]]]]) -> None:
        messages = []
        for prompt, (text, ids) in turns:
            messages += [Message("user", prompt), Message("assistant", text, tuple(ids))]
        messages.append(Message("user", "And?"))
        found, plain = template.render(messages), template.render(without_ids(messages))
        # An answer that breaks off in a character has a mark there, which other tokens may write in other bytes.
        assert tokenizer.decode(found, skip_special=False) == tokenizer.decode(plain, skip_special=False)
        assert list(filter(tokenizer.is_control, found)) == list(filter(tokenizer.is_control, plain))

    check()


def test_the_retokenised_text_would_have_missed(tmp_path: Path) -> None:
    """That random ids prove anything: encoded anew, their text has other ids."""
    tokenizer = tiny(tmp_path, KEEPING["own line"])
    template = ChatTemplate(tokenizer)
    answer = [token_id for byte in b"The quick brown fox" for token_id in tokenizer.encode(chr(byte))]
    messages = [Message("user", "Hi"), Message("assistant", "The quick brown fox", tuple(answer))]
    said = template.render(messages[:1]) + answer
    messages.append(Message("user", "And?"))
    assert template.render(messages)[: len(said)] == said
    assert template.render(without_ids(messages))[: len(said)] != said


@pytest.mark.parametrize(
    ("text", "left_out"),
    [("The fox jumps over the lazy dog. \n", 2), ("Over the dog世", 2), ("Over the dog🙂", 3)],
    ids=["white space", "two bytes of three", "three bytes of four"],
)
def test_a_stopped_answer_keeps_its_prefix(tmp_path: Path, text: str, left_out: int) -> None:
    tokenizer = tiny(tmp_path, CHANGING["trimmed"])
    template = ChatTemplate(tokenizer)
    answer = [token_id for byte in text.encode() for token_id in _byte(tokenizer, byte)]
    answer = answer if text.isascii() else answer[:-1]
    messages = [Message("user", "Hi"), Message("assistant", shown(tokenizer, answer, stopped=True), tuple(answer))]
    said = template.render(messages[:1]) + answer[:-left_out]
    assert template.render([*messages, Message("user", "And?")])[: len(said)] == said


def _byte(tokenizer: Tokenizer, byte: int) -> list[int]:
    return [number for number in range(tokenizer.vocab_size) if tokenizer.token_bytes(number) == bytes([byte])]


def test_an_answer_before_a_stop_string_keeps_its_prefix(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, KEEPING["own line"])
    template = ChatTemplate(tokenizer)
    answer = [*tokenizer.encode("The fox."), *_byte(tokenizer, ord("E")), *_byte(tokenizer, ord("N"))]
    messages = [Message("user", "Hi"), Message("assistant", "The fox.", tuple(answer)), Message("user", "And?")]
    said = template.render(messages[:1]) + answer[:-2]
    assert template.render(messages)[: len(said)] == said


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param("other words", id="of another text"),
        pytest.param((1,), id="a control token"),
        pytest.param("The <|end|> fox", id="a control token among words"),
        pytest.param((-1, 5), id="negative"),
        pytest.param((100_000,), id="outside the vocabulary"),
    ],
)
def test_ids_that_do_not_say_the_text_are_not_used(tmp_path: Path, ids: tuple[int, ...] | str) -> None:
    tokenizer = tiny(tmp_path, KEEPING["own line"])
    template = ChatTemplate(tokenizer)
    given_ids = tuple(tokenizer.encode_with_control(ids)) if isinstance(ids, str) else ids
    messages = [Message("user", "Hi"), Message("assistant", "The fox", given_ids), Message("user", "And?")]
    assert template.render(messages) == template.render(without_ids(messages))


def test_ids_outside_the_vocabulary_do_not_hide_among_good_ones(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, KEEPING["own line"])
    ids = (*tokenizer.encode("The fox"), 100_000)
    messages = [Message("user", "Hi"), Message("assistant", "The fox", ids), Message("user", "And?")]
    template = ChatTemplate(tokenizer)
    assert template.render(messages) == template.render(without_ids(messages))


PIECES = {
    "bracketed": "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content | trim }} </s>{% endif %}{% endfor %}",
    "own line": "{% for m in messages %}{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}",
    "none": None,
}


@pytest.mark.parametrize("name", PIECES)
def test_words_that_bring_their_own_space_keep_the_prefix(tmp_path: Path, name: str) -> None:
    """SentencePiece: the first word's space is not shown, and a template writes it or does not."""
    fields = sentence_piece_fields(chat_template=PIECES[name])
    tokenizer = load_tokenizer(save_fields(tmp_path / "tiny.gguf", fields))
    template = ChatTemplate(tokenizer)
    words = [number for number in range(259, tokenizer.vocab_size) if tokenizer.token_text(number).strip()]
    first = [number for number in words if tokenizer.token_text(number).startswith(" ")]

    @settings(max_examples=100)
    @given(start=st.sampled_from(first), rest=st.lists(st.sampled_from(words), min_size=1, max_size=15))
    def check(start: int, rest: list[int]) -> None:
        answer = [start, *rest]
        messages = [
            Message("user", "The dog"),
            Message("assistant", shown(tokenizer, answer, stopped=False), (*answer,)),
        ]
        said = template.render(messages[:1]) + answer
        found = template.render([*messages, Message("user", "And?")])
        assert found[: len(said)] == said
        after = tokenizer.decode(found[len(said) :], skip_special=False)
        plain = template.render([*without_ids(messages), Message("user", "And?")])
        assert tokenizer.decode(plain, skip_special=False).endswith(after), "nothing is added behind the answer"

    check()


def test_a_continuation_has_no_space_of_a_beginning(piece_tokenizer: Tokenizer, byte_tokenizer: Tokenizer) -> None:
    for text in (" ", "dog", " dog", "\nuser: dog", ""):
        for tokenizer in (piece_tokenizer, byte_tokenizer):
            before = tokenizer.encode("The")
            whole = tokenizer.decode([*before, *tokenizer.encode_continuation(text)], skip_special=False)
            assert whole == f"The{text}"
