"""The whole window with a scripted engine: type, see text, stop, two conversations at once, close, come back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from engine.requests import Request
from tests.app.desk import OpenDesk, open_desks
from tests.fakes.engine import ANSWER, Script, prompt_text
from tests.fakes.model_file import EMPTY_GGUF

CONTROL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def open_desk(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenDesk]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with open_desks(qtbot, tmp_path) as open_desk:
        yield open_desk


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(EMPTY_GGUF)
    return str(path)


def echo(request: Request) -> list[str]:
    """An endless answer that names its prompt."""
    return [f"{prompt_text(request)} "] * 1_000_000


@pytest.fixture
def endless() -> Script:
    return Script(answer=echo, pause_s=0.005)


def test_a_prompt_is_typed_and_its_answer_is_seen(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(model=model)
    desk.wait_ready()
    desk.ask("What is a block?")
    desk.wait(lambda: "".join(ANSWER) in desk.transcript)
    assert "What is a block?" in desk.transcript
    assert desk.titles == ["What is a block?"]
    desk.wait(lambda: "0 running" in desk.texts)
    assert any(text.startswith("first token 0.") for text in desk.texts)


def test_a_prompt_sent_before_the_model_is_ready_is_answered_when_it_is(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk()
    desk.ask("Too early?")
    desk.wait(lambda: "Too early?" in desk.transcript)
    desk.desktop.models.load_path(model)
    desk.wait(lambda: "".join(ANSWER) in desk.transcript)


def test_esc_stops_and_keeps_the_text_while_typing_goes_on(open_desk: OpenDesk, model: str, endless: Script) -> None:
    desk = open_desk(endless, model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.wait(lambda: desk.transcript.count("alpha") > 5)
    desk.type("half a thought")
    assert desk.desktop.chat.pane.composer.text == "half a thought"
    desk.press(Qt.Key.Key_Escape)
    desk.wait(lambda: not desk.client.open_requests)
    stopped = desk.transcript
    assert stopped.count("alpha") > 5
    desk.press(Qt.Key.Key_Return)
    desk.wait(lambda: desk.transcript.count("half a thought") > 5)
    assert desk.transcript.startswith(stopped[:20])


def test_two_conversations_are_answered_at_once_and_keep_apart(
    open_desk: OpenDesk, model: str, endless: Script
) -> None:
    desk = open_desk(endless, model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.press(Qt.Key.Key_N, CONTROL)
    desk.ask("beta")
    desk.wait(lambda: len(desk.client.open_requests) == 2 and "beta beta" in desk.transcript)
    desk.wait(lambda: "2 running" in desk.texts)
    assert "alpha" not in desk.transcript
    assert desk.titles == ["beta", "alpha"]
    desk.choose("alpha")
    desk.wait(lambda: "alpha alpha" in desk.transcript)
    assert "beta" not in desk.transcript
    seen = desk.transcript.count("alpha")
    desk.wait(lambda: desk.transcript.count("alpha") > seen)
    desk.press(Qt.Key.Key_Escape)
    desk.wait(lambda: len(desk.client.open_requests) == 1)
    desk.choose("beta")
    seen = desk.transcript.count("beta")
    desk.wait(lambda: desk.transcript.count("beta") > seen)


def test_the_graphs_call_a_request_by_its_conversation(open_desk: OpenDesk, model: str, endless: Script) -> None:
    desk = open_desk(endless, model=model)
    desk.wait_ready()
    desk.ask("a question that is longer than a legend has room for")
    desk.wait(lambda: "question" in desk.transcript)
    [request_id] = desk.client.open_requests
    assert desk.desktop.chat.name_of(request_id) == "a question that i…"
    assert desk.desktop.chat.name_of("Essay") == "Essay"


def test_what_was_written_is_there_at_the_next_start(open_desk: OpenDesk, model: str, endless: Script) -> None:
    desk = open_desk(endless, model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.wait(lambda: "alpha alpha alpha" in desk.transcript)
    desk.close()  # in the middle of the answer
    later = open_desk()
    assert later.titles == ["alpha"]
    later.choose("alpha")
    later.wait(lambda: "alpha alpha alpha" in later.transcript)
    assert not later.client.open_requests


def test_a_broken_engine_says_so_in_every_open_conversation(open_desk: OpenDesk, model: str) -> None:
    script = Script(answer=echo, pause_s=0.005, step_error=(40, RuntimeError("no more memory")))
    desk = open_desk(script, model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.press(Qt.Key.Key_N, CONTROL)
    desk.ask("beta")
    desk.wait(lambda: not desk.client.open_requests and bool(desk.client.status.message))
    for title in ("alpha", "beta"):
        desk.choose(title)
        desk.wait(lambda: any("The engine stopped: no more memory" in text for text in desk.texts))


def test_a_broken_engine_is_loaded_again_and_the_answers_keep_what_they_had(open_desk: OpenDesk, model: str) -> None:
    script = Script(answer=echo, pause_s=0.005, step_error=(40, RuntimeError("no more memory")))
    desk = open_desk(script, model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.wait(lambda: "model.gguf has stopped" in desk.texts)
    assert desk.transcript.count("alpha") > 20
    assert desk.desktop.chat.pane.transcript.isVisible()
    script.step_error = None
    desk.click("Load again")
    desk.wait_ready()
    assert desk.transcript.count("alpha") > 20
    assert "model.gguf has stopped" not in desk.texts
    desk.click("Retry")
    desk.wait(lambda: bool(desk.client.open_requests) and desk.transcript.count("alpha") > 5)


def test_what_was_typed_and_not_sent_is_there_at_the_next_start(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.wait(lambda: not desk.client.open_requests)
    desk.type("and then")
    desk.press(Qt.Key.Key_N, CONTROL)
    desk.type("something else")
    desk.close()
    later = open_desk()
    assert later.desktop.chat.pane.composer.text == "something else"
    later.choose("alpha")
    assert later.desktop.chat.pane.composer.text == "and then"


def test_keys_of_a_hidden_list_still_work(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(model=model)
    desk.wait_ready()
    desk.ask("alpha")
    desk.wait(lambda: not desk.client.open_requests)
    desk.press(Qt.Key.Key_B, CONTROL)
    assert not desk.desktop.chat.list.isVisible()
    desk.press(Qt.Key.Key_N, CONTROL)
    assert "alpha" not in desk.transcript
    desk.press(Qt.Key.Key_K, CONTROL)
    assert desk.desktop.chat.list.search_field.hasFocus()


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("list_shown", [False, True])
def test_whoever_begins_a_chat_can_type_at_once(
    open_desk: OpenDesk, model: str, list_shown: bool, is_new: bool
) -> None:
    desk = open_desk(model=model)
    desk.wait_ready()
    if not is_new:
        desk.ask("alpha")
        desk.wait(lambda: not desk.client.open_requests)
    desk.press(Qt.Key.Key_K, CONTROL)
    QTest.keyClicks(desk.window.focusWidget(), "beta")
    desk.press(Qt.Key.Key_Escape)
    if not list_shown:
        desk.press(Qt.Key.Key_B, CONTROL)
    desk.press(Qt.Key.Key_N, CONTROL)
    desk.ask("gamma")
    desk.wait(lambda: "gamma" in desk.titles)
    assert desk.desktop.chat.list.search_field.text() == ""
    if list_shown:
        desk.press(Qt.Key.Key_K, CONTROL)
        desk.click("+  New chat")
        desk.type("delta")


def test_the_scenario_of_the_chat_answers_several_conversations_at_once(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(Script(pause_s=0.02), model=model, scenario="chat")
    desk.wait(lambda: len(desk.titles) == 3)
    usual = desk.desktop.chat.controller.sampling
    desk.wait(lambda: "".join(ANSWER) in desk.transcript and not desk.client.open_requests)
    assert desk.transcript.startswith("Write a Python function")
    assert usual.max_tokens is None, "what the user asks next is asked as usual"


def test_after_closing_has_begun_no_prompt_is_taken(open_desk: OpenDesk, model: str) -> None:
    desk = open_desk(model=model)
    desk.wait_ready()
    desk.close()
    assert not desk.desktop.chat.pane.isEnabled()
