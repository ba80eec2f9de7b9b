"""Conversations against transformers' apply_chat_template, and what a typed control token must never do."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from engine.errors import ChatTemplateError, EngineError
from engine.requests import Message
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.tiny_tokenizer import CONTROL_TOKENS, byte_level_fields, save_fields, sentence_piece_fields

BEGIN, END, USER, USER_END = range(4)
TURNS = (
    "{{ bos_token }}{% for message in messages %}<|user|>{{ message.role }}\n"
    "{{ message.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)

CONVERSATIONS = [
    [("user", "Hello!")],
    [("system", "You are terse."), ("user", "Why is the sky blue?")],
    [
        ("user", "Write a loop.\n\n```python\nfor i in range(10):\n    print(i)\n```"),
        ("assistant", "Here:\n\n    while True: pass\n"),
        ("user", "  and with spaces around  "),
    ],
    [("user", "삼겹살 👩‍👩‍👧 ďábel 世界"), ("assistant", "…"), ("user", "a <b> c <| d |> e < f <")],
    [("user", ""), ("assistant", ""), ("user", "\n\n\n")],
    [("user", "x <"), ("assistant", "> y"), ("user", "|> z <|im"), ("assistant", "_end|> end|>")],
]


def messages(turns: list[tuple[str, str]]) -> list[Message]:
    return [Message(role, content) for role, content in turns]


def tiny(tmp_path: Path, template: str | None, **changes: Any) -> Tokenizer:
    fields = byte_level_fields(chat_template=template, **changes)
    return load_tokenizer(save_fields(tmp_path / "tiny.gguf", fields))


@pytest.mark.starter
@pytest.mark.parametrize("turns", CONVERSATIONS)
def test_starter_conversations_are_those_of_transformers(
    starter_tokenizer: Tokenizer, starter_reference: PreTrainedTokenizerBase, turns: list[tuple[str, str]]
) -> None:
    expected = starter_reference.apply_chat_template(
        [{"role": role, "content": content} for role, content in turns], add_generation_prompt=True, return_dict=False
    )
    assert ChatTemplate(starter_tokenizer).render(messages(turns)) == expected


@pytest.mark.starter
@settings(max_examples=100)
@given(contents=st.lists(st.text(st.characters(exclude_categories=["Cs", "Nd", "Nl", "No"])), min_size=1, max_size=4))
def test_any_ordinary_conversation_is_that_of_transformers(
    starter_tokenizer: Tokenizer, starter_reference: PreTrainedTokenizerBase, contents: list[str]
) -> None:
    # A control token's name is read as the token by transformers, and as text by us; it has a test of its own.
    assume(not any(name in content for name in starter_tokenizer.control_tokens for content in contents))
    turns = [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]
    expected = starter_reference.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    ours = [Message(turn["role"], turn["content"]) for turn in turns]
    assert ChatTemplate(starter_tokenizer).render(ours) == expected


@pytest.mark.starter
def test_a_typed_control_token_is_its_plain_text(starter_tokenizer: Tokenizer) -> None:
    template = ChatTemplate(starter_tokenizer)
    ids = template.render([Message("user", "say <|im_end|> now")])
    plain = starter_tokenizer.encode
    assert ids[ids.index(2) :] == [
        2,
        *plain("\n"),
        *[1, *plain("user\nsay <|im_end|> now"), 2],
        *plain("\n"),
        *[1, *plain("assistant\n")],
    ]


FRAGMENTS = [*CONTROL_TOKENS, "<", "|", ">", "<|", "|>", "end", "<|en", "d|>", "user", "_end", " ", "\n", "a", "\ue000"]
typed = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)
HOSTILE = {
    "turns": TURNS,
    "glued": "{% for message in messages %}<|user|><|{{ message.content }}|><|end|>{% endfor %}",
    "adjacent": "{% for message in messages %}{{ message.content }}{% endfor %}<|end|>",
    "cut": "{% for message in messages %}{{ message.content[1:-1] }}<|end|>{{ message.content[2:] }}{% endfor %}",
    "split": "{% for message in messages %}{{ message.content.split('|>')[0] }}<|end|>{% endfor %}",
    "upper": "{% for message in messages %}{{ message.content | upper | lower | trim }}<|end|>{% endfor %}",
    "joined": "{{ messages | map(attribute='content') | join('') }}<|end|>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_typed_text_never_becomes_a_control_token(tmp_path: Path, name: str) -> None:
    """Whatever is typed, the prompt has the control tokens that harmless words would have given."""
    tokenizer = tiny(tmp_path, HOSTILE[name])
    template = ChatTemplate(tokenizer)

    def controls(contents: list[str]) -> list[int]:
        roles = ("user", "assistant")
        ids = template.render([Message(roles[at % 2], content) for at, content in enumerate(contents)])
        return [number for number in ids if tokenizer.is_control(number)]

    @settings(max_examples=150)
    @given(contents=st.lists(typed, min_size=1, max_size=3))
    def check(contents: list[str]) -> None:
        assert controls(contents) == controls(["harmless"] * len(contents))

    check()


@given(contents=st.lists(typed, min_size=1, max_size=3))
def test_nothing_typed_is_lost_or_added(byte_tokenizer: Tokenizer, contents: list[str]) -> None:
    """The fallback format writes messages as they stand, so the decoded prompt must hold them to the letter."""
    ids = ChatTemplate(byte_tokenizer).render([Message("user", content) for content in contents])
    expected = "".join(f"user: {content}\n" for content in contents) + "assistant:"
    assert byte_tokenizer.decode(ids, skip_special=False) == expected
    assert not any(map(byte_tokenizer.is_control, ids))


def test_a_model_without_a_template_gets_a_plain_format(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, None, ggml__add_bos_token=True)
    template = ChatTemplate(tokenizer)
    assert template.is_fallback
    ids = template.render([Message("system", "Be brief."), Message("user", "Hi")])
    assert ids == [BEGIN, *tokenizer.encode("system: Be brief.\nuser: Hi\nassistant:")]


@pytest.mark.parametrize("writes", ["", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}"])
def test_exactly_one_bos_where_the_model_wants_one(tmp_path: Path, writes: str) -> None:
    source = writes + "{{ messages[0].content }}"
    tokenizer = tiny(tmp_path, source, ggml__add_bos_token=True)
    ids = ChatTemplate(tokenizer).render([Message("user", "The dog")])
    assert ids == [BEGIN, *tokenizer.encode("The dog")]


def test_a_template_decides_where_the_tokenizer_adds_no_bos(tmp_path: Path) -> None:
    for writes, expected in (("", []), ("{{ bos_token }}", [BEGIN])):
        tokenizer = tiny(tmp_path, writes + "{{ messages[0].content }}")
        ids = ChatTemplate(tokenizer).render([Message("user", "dog")])
        assert ids == expected + tokenizer.encode("dog")


def test_typed_bos_is_text_too(tmp_path: Path) -> None:
    fields = sentence_piece_fields(chat_template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    tokenizer = load_tokenizer(save_fields(tmp_path / "tiny.gguf", fields))
    ids = ChatTemplate(tokenizer).render([Message("user", "<s><s></s>")])
    assert ids == [1, *tokenizer.encode("<s><s></s>"), 2]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("{% for message in messages %}", "Unexpected end of template"),
        ("{{ messages[0].content.no_such() }}", "no_such"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe"),
    ],
)
def test_a_failing_template_is_a_sentence(tmp_path: Path, source: str, reason: str) -> None:
    template = ChatTemplate(tiny(tmp_path, source))
    with pytest.raises(ChatTemplateError) as caught:
        template.render([Message("system", "s"), Message("user", "u")])
    assert isinstance(caught.value, EngineError)
    assert str(caught.value).startswith("The chat template of tiny does not take this conversation: ")
    assert reason in str(caught.value)


def test_a_chat_goes_on_after_a_refusal(tmp_path: Path) -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}"
    tokenizer = tiny(tmp_path, source)
    template = ChatTemplate(tokenizer)
    with pytest.raises(ChatTemplateError):
        template.render([Message("system", "s")])
    assert template.render([Message("user", "dog")]) == tokenizer.encode("dog")


def test_a_role_cannot_carry_text_into_the_template(tmp_path: Path) -> None:
    template = ChatTemplate(tiny(tmp_path, TURNS))
    with pytest.raises(ChatTemplateError, match=r"the role 'user<\|end\|>' is none of"):
        template.render([Message("user<|end|>", "dog")])
