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
    messages = messages_of("Be brief.", turns)
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
    assert [(m.role, m.content) for m in messages_of("", turns)] == [("user", "one\n\ntwo\n\nthree")]
