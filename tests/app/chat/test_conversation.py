from dataclasses import replace

import pytest

from app.chat.conversation import MAX_TITLE_CHARS, Role, Turn, TurnState, messages_of, title_of


def turn(role: Role, text: str, state: TurnState = TurnState.COMPLETE) -> Turn:
    return Turn(id=text, conversation_id="c", position=0, role=role, text=text, state=state)


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Why?", "Why?"),
        ("\n\n  # Fix   this \n```py\nx\n```", "Fix this"),
        ("   \n ", "New chat"),
        ("---", "---"),
    ],
)
def test_a_title_is_the_first_line_that_says_something(prompt: str, title: str) -> None:
    assert title_of(prompt) == title


def test_a_long_title_is_cut_at_a_word() -> None:
    prompt = "word " * 40
    title = title_of(prompt)
    assert len(title) <= MAX_TITLE_CHARS
    assert title.endswith("word…")
    assert len(title_of("x" * 400)) == MAX_TITLE_CHARS


def test_messages_hold_the_system_prompt_and_what_was_said() -> None:
    turns = [
        turn(Role.USER, "one"),
        turn(Role.ASSISTANT, "part", TurnState.STOPPED),
        turn(Role.USER, "two"),
        turn(Role.ASSISTANT, "", TurnState.STREAMING),
    ]
    messages = messages_of("Be brief.", turns, "model")
    assert [(m.role, m.content) for m in messages] == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", "part"),
        ("user", "two"),
    ]


def test_roles_alternate_even_after_a_failure() -> None:
    turns = [
        turn(Role.USER, "one"),
        turn(Role.ASSISTANT, "broken", TurnState.FAILED),
        turn(Role.USER, "two"),
        turn(Role.ASSISTANT, "", TurnState.STOPPED),
        turn(Role.USER, "three"),
    ]
    assert [(m.role, m.content) for m in messages_of("", turns, "model")] == [("user", "one\n\ntwo\n\nthree")]


def test_ids_go_only_to_the_model_that_produced_them() -> None:
    turns = [
        turn(Role.USER, "one"),
        replace(turn(Role.ASSISTANT, "eins"), token_ids=(1, 2), model="A"),
        turn(Role.USER, "two"),
        replace(turn(Role.ASSISTANT, "zwei", TurnState.STOPPED), token_ids=(3,), model="B"),
    ]
    for model, expected in (("A", [(), (1, 2), (), ()]), ("B", [(), (), (), (3,)]), ("C", [()] * 4), ("", [()] * 4)):
        assert [message.token_ids for message in messages_of("", turns, model)] == expected


def test_answers_that_became_one_message_have_no_ids() -> None:
    turns = [replace(turn(Role.ASSISTANT, text), token_ids=(1,), model="A") for text in ("one", "two")]
    assert [message.token_ids for message in messages_of("", turns, "A")] == [()]
