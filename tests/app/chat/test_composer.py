import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.composer import MAX_PASTE_CHARS, Composer
from app.chat.context_use import ContextUse
from app.theme import Theme

Key, Modifier = Qt.Key, Qt.KeyboardModifier


@pytest.fixture
def composer(qtbot: QtBot, theme: Theme) -> Composer:
    made = Composer()
    qtbot.addWidget(made)
    made.resize(500, 100)
    made.show()
    made.setFocus()
    return made


def sent_by(qtbot: QtBot, composer: Composer, key: Key, modifier: Modifier = Modifier.NoModifier) -> list[str]:
    sent: list[str] = []
    composer.submitted.connect(sent.append)
    composer.set_text("hello")
    qtbot.keyClick(composer.field, key, modifier)
    composer.submitted.disconnect(sent.append)
    return sent


@pytest.mark.parametrize("key", [Key.Key_Return, Key.Key_Enter])
@pytest.mark.parametrize("modifier", [Modifier.NoModifier, Modifier.ControlModifier, Modifier.KeypadModifier])
def test_enter_sends_and_the_field_keeps_it_until_it_is_taken(
    qtbot: QtBot, composer: Composer, key: Key, modifier: Modifier
) -> None:
    assert sent_by(qtbot, composer, key, modifier) == ["hello"]
    assert composer.text == "hello"


def test_shift_and_enter_break_the_line(qtbot: QtBot, composer: Composer) -> None:
    assert sent_by(qtbot, composer, Key.Key_Return, Modifier.ShiftModifier) == []
    assert composer.text in ("hello\n", "hello\u2028")


def test_enter_of_an_input_method_does_not_send(qtbot: QtBot, composer: Composer) -> None:
    composer.set_text("hello")
    QApplication.sendEvent(composer.field, QInputMethodEvent("にほ", []))
    assert composer.field.is_composing
    sent: list[str] = []
    composer.submitted.connect(sent.append)
    qtbot.keyClick(composer.field, Key.Key_Return)
    assert sent == []


def test_there_is_nothing_to_send_in_an_empty_field(qtbot: QtBot, composer: Composer) -> None:
    sent: list[str] = []
    composer.submitted.connect(sent.append)
    composer.set_text(" \n ")
    qtbot.keyClick(composer.field, Key.Key_Return)
    assert not composer._send.isEnabled()
    assert sent == []
    composer.set_text("x")
    assert composer._send.isEnabled()


def test_while_an_answer_is_written_typing_goes_on_and_enter_says_why_it_does_not_send(
    qtbot: QtBot, composer: Composer
) -> None:
    composer.set_context(ContextUse(5, 10, is_exact=True))
    composer.set_running(True)
    assert sent_by(qtbot, composer, Key.Key_Return) == []
    qtbot.keyClicks(composer.field, " world")
    assert composer.text == "hello world"
    assert "Esc stops it" in composer._context.text()
    composer.set_running(False)
    assert composer._context.text() == "Context 5 of 10 tokens"


def test_the_button_becomes_stop_in_the_same_place(qtbot: QtBot, composer: Composer) -> None:
    stopped: list[bool] = []
    composer.stop_requested.connect(lambda: stopped.append(True))
    place = composer._send.mapTo(composer, composer._send.rect().topLeft()), composer._send.size()
    composer.set_running(True)
    assert composer._stop.isVisible()
    assert not composer._send.isVisible()
    assert (composer._stop.mapTo(composer, composer._stop.rect().topLeft()), composer._stop.size()) == place
    composer._stop.click()
    assert stopped == [True]


def test_the_field_grows_with_its_text_up_to_a_limit(qtbot: QtBot, composer: Composer) -> None:
    heights = []
    for count in (1, 2, 4, 8, 9, 40):
        composer.set_text("\n".join(["line"] * count))
        heights.append(composer.field.height())
    one, two, four, eight, nine, forty = heights
    assert one == two < four < eight == nine == forty
    composer.set_text("word " * 100)
    assert composer.field.height() > two, "wrapped lines count"
    composer.set_text("\n".join(["line"] * 4))
    assert composer.field.verticalScrollBar().maximum() == 0


def test_a_paste_is_text_only(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("plain <b>text</b>")
    composer.field.insertFromMimeData(data)
    assert composer.text == "plain <b>text</b>"


def test_a_paste_beyond_any_context_is_cut_and_said(composer: Composer) -> None:
    data = QMimeData()
    data.setText("word " * MAX_PASTE_CHARS)
    composer.field.insertFromMimeData(data)
    assert len(composer.text) == MAX_PASTE_CHARS
    assert f"{5 * MAX_PASTE_CHARS:,}" in composer._context.text()
