"""What an answer shows: everything a model wrote, nothing that it wants done."""

import time
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray, QUrl
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextDocument
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.chat.answer_text import AnswerText, CopyCodeButton
from app.chat.document_decor import code_frames
from app.chat.markdown import MarkdownReader
from app.chat.message_text import selected_text
from app.theme import DARK, Theme

SAMPLE = "Some **prose**\n\n```python\nx = 1\n\ny = 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n1. one\n   - two\n"


@pytest.fixture
def text(qtbot: QtBot, theme: Theme) -> AnswerText:
    holder = QWidget()
    layout = QVBoxLayout(holder)
    made = AnswerText(MarkdownReader(), theme.colours)
    layout.addWidget(made)
    layout.addStretch(1)
    qtbot.addWidget(holder)
    holder.resize(500, 600)
    holder.show()
    made._holder = holder  # type: ignore[attr-defined]
    return made


def copy_buttons(text: AnswerText) -> list[CopyCodeButton]:
    return [button for button in text.findChildren(CopyCodeButton) if button.isVisible()]


@pytest.mark.parametrize(
    "source",
    [
        "The type List<String> and <img src=x onerror=1> end",
        "a < b && c > d",
        "from $5 to $10",
        "<script>alert(1)</script>",
        "&amp;amp;",
    ],
)
def test_nothing_is_taken_for_html(text: AnswerText, source: str) -> None:
    text.show_text(source)
    assert text.toPlainText() == source.replace("&amp;amp;", "&amp;")


def test_no_file_is_read(text: AnswerText, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    text.show_text(f"![a](file://{secret}) ![b]({secret})")
    assert "secret.txt" in text.toPlainText()
    for kind in QTextDocument.ResourceType:
        assert text.document().resource(kind.value, QUrl.fromLocalFile(str(secret))) == QByteArray()


def test_only_web_links_are_offered(qtbot: QtBot, text: AnswerText) -> None:
    offered: list[str] = []
    text.link_activated.connect(offered.append)
    for address in ("https://example.org/a", "file:///etc/passwd", "javascript:x", "mailto:a@b"):
        text.anchorClicked.emit(QUrl(address))
    assert offered == ["https://example.org/a"]


def test_code_has_a_button_that_copies_just_it(text: AnswerText) -> None:
    text.show_text(SAMPLE + "\n```\n" + "z" * 500 + "\n```")
    first, second = copy_buttons(text)
    assert first.accessibleName() == "Copy python"
    first.click()
    assert QGuiApplication.clipboard().text() == "x = 1\n\ny = 2"
    second.click()
    assert QGuiApplication.clipboard().text() == "z" * 500


@pytest.mark.parametrize("before", ["", "Words.\n\n"])
def test_the_frame_of_code_lies_inside_the_view_even_when_it_comes_first(text: AnswerText, before: str) -> None:
    for letter in before + "```python\nx = 1\n```\n\nThat is all.":
        text.append_text(letter)
        text.flush()
    text.finish()
    (frame,) = code_frames(text.document(), text.writer.entries, text.width())
    line = text.document().documentLayout().blockBoundingRect(text.document().findBlock(text.writer.entries[0].text))
    assert frame.rect.top() >= (line.bottom() if before else 0)
    (button,) = copy_buttons(text)
    assert button.y() >= frame.rect.top()
    assert text.height() >= text.document().size().height()
    text.show_text("No code at all.")
    assert text.document().documentLayout().blockBoundingRect(text.document().firstBlock()).top() == 0


def test_buttons_stand_in_their_frames_at_any_width(qtbot: QtBot, text: AnswerText) -> None:
    text.show_text("A long paragraph. " * 20 + "\n\n```\nx\n```")
    (button,) = copy_buttons(text)
    wide = button.y()
    text.window().resize(260, 600)
    qtbot.waitUntil(lambda: text.width() < 260)
    assert button.y() > wide
    assert button.geometry().right() <= text.viewport().width()


def test_a_growing_text_is_shown_and_takes_its_height(text: AnswerText) -> None:
    heights = []
    for piece in ("one\n\n", "two\n\n", "three"):
        text.append_text(piece)
        text.flush()
        heights.append(text.height())
    assert text.toPlainText() == "one\ntwo\nthree"
    assert heights == sorted(set(heights))
    assert text.height() >= text.document().size().height()


def test_text_that_comes_too_fast_is_gathered_and_not_lost(qtbot: QtBot, text: AnswerText) -> None:
    text._flush_cost_s, text._flushed_s = 1000.0, time.perf_counter()
    for number in range(100):
        text.append_text(f"{number} ")
    assert text.toPlainText() == ""
    text.finish()
    assert text.toPlainText().split() == [str(number) for number in range(100)]


def test_a_selection_survives_growing(text: AnswerText) -> None:
    text.append_text("A first paragraph.\n\nA second one")
    text.flush()
    cursor = text.textCursor()
    cursor.setPosition(2)
    cursor.setPosition(7, QTextCursor.MoveMode.KeepAnchor)
    text.setTextCursor(cursor)
    for number in range(100):
        text.append_text(f" word{number}" if number % 7 else "\n\n- item\n\n```\ncode\n```\n\n")
        text.flush()
    assert text.textCursor().selectedText() == "first"
    assert (text.textCursor().anchor(), text.textCursor().position()) == (2, 7)
    text.finish()
    assert text.textCursor().selectedText() == "first"
    text.copy()
    assert QGuiApplication.clipboard().text() == "first"


def test_a_selection_in_the_growing_paragraph_survives_too(text: AnswerText) -> None:
    text.append_text("The tail that is selected")
    text.flush()
    cursor = text.textCursor()
    cursor.setPosition(4)
    cursor.setPosition(8, QTextCursor.MoveMode.KeepAnchor)
    text.setTextCursor(cursor)
    for _ in range(20):
        text.append_text(" and grows **bold** on")
        text.flush()
    assert text.textCursor().selectedText() == "tail"


def test_copying_a_selection_gives_readable_text(text: AnswerText) -> None:
    text.show_text(SAMPLE)
    text.selectAll()
    assert selected_text(text.textCursor()) == "Some prose\nx = 1\n\ny = 2\na\tb\n1\t2\n1. one\n• two"


def test_copying_leaves_out_helper_characters_and_keeps_emoji(text: AnswerText) -> None:
    source = "😀" + "x" * 1000 + "😀"
    text.show_text(source)
    text.selectAll()
    assert selected_text(text.textCursor()) == source


def test_other_colours_keep_everything(text: AnswerText) -> None:
    text.show_text(SAMPLE)
    before = text.toPlainText()
    text.set_colours(DARK)
    assert text.toPlainText() == before
    assert len(copy_buttons(text)) == 1


def test_code_gets_its_colours_in_the_end(qtbot: QtBot, text: AnswerText) -> None:
    for line in ["```python\n", *(f"x{number} = 'text'\n" for number in range(200)), "```\n\nend"]:
        text.append_text(line)
        text.flush()
    text.finish()
    qtbot.waitUntil(lambda: not text._colouring_timer.isActive())
    (entry, _) = text.writer.entries
    assert entry.pieces == 1
    assert entry.coloured == len(entry.block.text)  # type: ignore[union-attr]


def test_a_line_of_a_million_characters_can_be_shown(text: AnswerText) -> None:
    text.show_text("x" * 40_000)
    assert text.toPlainText().replace("\u200b", "") == "x" * 40_000
    assert text.document().size().width() <= text.width()
