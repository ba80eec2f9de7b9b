"""The pane with a scripted engine: type, see text, stop, switch, fail, retry."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QLabel, QMessageBox
from pytestqt.qtbot import QtBot

from app.chat.controller import ChatController
from app.chat.empty_chat import PROMPTS
from app.chat.pane import ChatPane
from app.theme import Theme
from engine.events import EngineState, EngineStatus
from tests.fakes.engine_client import READY, FakeEngineClient


def type_and_send(qtbot: QtBot, pane: ChatPane, text: str) -> None:
    qtbot.keyClicks(pane.composer.field, text)
    qtbot.keyClick(pane.composer.field, Qt.Key.Key_Return)


def answers(pane: ChatPane) -> list[str]:
    for view in pane.transcript.views:
        getattr(view.browser, "flush", lambda: None)()
    return [view.browser.toPlainText() for view in pane.transcript.views]


def buttons(pane: ChatPane) -> dict[str, QAbstractButton]:
    return {button.text(): button for button in pane.findChildren(QAbstractButton) if button.isVisible()}


def test_type_send_see_and_stop(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    assert pane.empty.isVisible()
    type_and_send(qtbot, pane, "Why?")
    assert pane.composer.text == ""
    assert pane.transcript.isVisible()
    client.say("Because **of")
    assert answers(pane) == ["Why?", "Because of"]
    qtbot.keyClick(pane.composer.field, Qt.Key.Key_Escape)
    assert client.cancelled == [client.last_id]
    assert answers(pane) == ["Why?", "Because **of"]
    assert buttons(pane)["Send"]


def test_escape_never_touches_the_draft(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    type_and_send(qtbot, pane, "Why?")
    qtbot.keyClicks(pane.composer.field, "next")
    for _ in range(3):
        qtbot.keyClick(pane.composer.field, Qt.Key.Key_Escape)
    assert pane.composer.text == "next"
    assert client.cancelled == [client.last_id]


def test_two_conversations_stream_while_the_reader_switches(
    qtbot: QtBot, pane: ChatPane, controller: ChatController, client: FakeEngineClient
) -> None:
    type_and_send(qtbot, pane, "A")
    first, first_request = controller.current_id, client.last_id
    client.say("a1 ", first_request)
    qtbot.keyClicks(pane.composer.field, "draft of A")
    controller.new_conversation()
    assert pane.empty.isVisible()
    assert pane.composer.text == ""
    type_and_send(qtbot, pane, "B")
    second, second_request = controller.current_id, client.last_id
    client.say("a2 ", first_request)
    client.say("b1 ", second_request)
    assert answers(pane) == ["B", "b1"]
    controller.select(first)
    assert answers(pane) == ["A", "a1 a2"]
    assert pane.composer.text == "draft of A"
    client.say("a3", first_request)
    client.say("b2", second_request)
    client.finish(second_request)
    assert answers(pane) == ["A", "a1 a2 a3"]
    assert buttons(pane)["Stop  Esc"], "A is still being written"
    controller.select(second)
    assert answers(pane) == ["B", "b1 b2"]
    assert buttons(pane)["Send"]


def test_an_error_can_be_retried_in_place(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    type_and_send(qtbot, pane, "Why?")
    client.say("half an ans")
    client.fail("The engine stopped: no memory.")
    buttons(pane)["Retry"].click()
    assert len(client.submitted) == 2
    assert client.submitted[0].messages == client.submitted[1].messages
    assert answers(pane) == ["Why?", ""]
    client.say("A whole answer")
    client.finish()
    assert answers(pane) == ["Why?", "A whole answer"]
    assert "Retry" not in buttons(pane)


def test_a_prompt_without_a_model_waits_and_says_so(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    client.set_status(EngineStatus(EngineState.EMPTY))
    type_and_send(qtbot, pane, "Why?")
    [_, answer] = pane.transcript.views
    assert answer._stats.text() == "Will be sent when the model is ready."  # type: ignore[attr-defined]
    client.set_status(READY)
    assert answer._stats.text() == "Reading the prompt…"  # type: ignore[attr-defined]
    assert len(client.submitted) == 1


def test_what_was_typed_while_an_answer_is_written_is_kept(
    qtbot: QtBot, pane: ChatPane, client: FakeEngineClient
) -> None:
    type_and_send(qtbot, pane, "one")
    type_and_send(qtbot, pane, "two")
    assert (pane.composer.text, len(client.submitted)) == ("two", 1)
    client.finish()
    qtbot.keyClick(pane.composer.field, Qt.Key.Key_Return)
    assert (pane.composer.text, len(client.submitted)) == ("", 2)


def test_sample_prompts_are_sent_and_leave_the_draft(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    qtbot.keyClicks(pane.composer.field, "draft")
    buttons(pane)[PROMPTS[0]].click()
    assert client.submitted[0].messages[0].content == PROMPTS[0]
    assert pane.composer.text == "draft"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (READY, "SmolLM2-135M-Instruct"),
        (EngineStatus(EngineState.LOADING), "loading"),
        (EngineStatus(EngineState.EMPTY), "No model"),
        (EngineStatus(EngineState.FAILED, message="Bad <b>file</b>."), "not running"),
    ],
)
def test_the_empty_state_says_which_model_answers(
    pane: ChatPane, client: FakeEngineClient, status: EngineStatus, words: str
) -> None:
    client.set_status(status)
    assert words in pane.empty._name.text()
    assert status.message in pane.empty._line.text()


def test_a_narrow_pane_hides_nothing(qtbot: QtBot, pane: ChatPane) -> None:
    for width in (320, 900):
        pane.resize(width, 600)
        assert pane.width() == width
        for label in pane.empty.findChildren(QLabel):
            assert label.height() >= label.heightForWidth(label.width()), label.text()


def test_the_context_line_counts(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    type_and_send(qtbot, pane, "Why?")
    client.say("Because", None, *range(30))
    client.finish()
    assert pane.composer._context.text() == "Context 42 of 8,192 tokens"
    pane.composer.set_text("x" * 40)
    assert pane.composer._context.text() == "Context ≈ 52 of 8,192 tokens"


@pytest.mark.parametrize("agreed", [True, False])
def test_a_link_is_opened_only_after_a_question_that_shows_it(
    qtbot: QtBot, controller: ChatController, client: FakeEngineClient, theme: Theme, agreed: bool
) -> None:
    opened: list[str] = []
    pane = ChatPane(controller, theme, open_link=opened.append)
    qtbot.addWidget(pane)
    pane.show()
    pane.send("Why?")
    client.say("[harmless](https://example.org/<b>?a=b)")
    client.finish()
    pane.transcript.views[-1].browser.link_activated.emit("https://example.org/x")
    [box] = pane.findChildren(QMessageBox)
    assert "https://example.org/x" in box.informativeText()
    box.button(QMessageBox.StandardButton.Open if agreed else QMessageBox.StandardButton.Cancel).click()
    assert opened == (["https://example.org/x"] if agreed else [])


def test_the_last_answer_can_be_copied_by_key(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    type_and_send(qtbot, pane, "Why?")
    client.say("**so**")
    qtbot.keyClick(
        pane.composer.field, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    )
    assert QGuiApplication.clipboard().text() == "**so**"


def test_every_button_has_a_name_and_a_tooltip(qtbot: QtBot, pane: ChatPane, client: FakeEngineClient) -> None:
    type_and_send(qtbot, pane, "Why?")
    client.say("```py\nx\n```\n")
    client.fail("No.")
    found = pane.findChildren(QAbstractButton)
    assert len(found) > 8
    for button in found:
        assert button.accessibleName(), button.text()
        assert button.toolTip(), button.text()


def test_a_theme_change_keeps_text_and_place(
    qtbot: QtBot, pane: ChatPane, client: FakeEngineClient, theme: Theme
) -> None:
    type_and_send(qtbot, pane, "Why?")
    client.say("Some `code` and\n\n```py\nx = 1\n```\n")
    before = answers(pane)
    theme.set_choice("dark")
    assert answers(pane) == before
    client.say("more")
    client.finish()
    assert answers(pane)[-1].endswith("more")
