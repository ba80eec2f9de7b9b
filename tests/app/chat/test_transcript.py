"""The transcript follows the end only while the reader is there."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QAbstractSlider, QApplication, QPushButton
from pytestqt.qtbot import QtBot

from app.chat.answer_view import FOLD_CHARS, AnswerView, stats_line, stats_tip
from app.chat.conversation import Role, Turn, TurnState, TurnStats
from app.chat.prompt_view import FOLD_CHARS as FOLD_PROMPT_CHARS
from app.chat.prompt_view import PromptView
from app.chat.transcript import TURNS_AT_ONCE, Transcript
from app.theme import Theme

Action = QAbstractSlider.SliderAction
STATS = TurnStats(prompt_tokens=70, new_tokens=96, cached_tokens=64, ttft_s=0.14, tokens_per_s=48.2, reason="eos")


def user(position: int, text: str = "A question") -> Turn:
    return Turn(id=f"u{position}", conversation_id="c", position=position, role=Role.USER, text=text)


def answer(position: int, text: str, state: TurnState = TurnState.STREAMING) -> Turn:
    return Turn(id=f"a{position}", conversation_id="c", position=position, role=Role.ASSISTANT, text=text, state=state)


@pytest.fixture
def transcript(qtbot: QtBot, theme: Theme) -> Transcript:
    made = Transcript(theme)
    qtbot.addWidget(made)
    made.resize(600, 400)
    made.show()
    qtbot.waitExposed(made)
    return made


class Stream:
    """An answer that grows in the transcript."""

    def __init__(self, transcript: Transcript, text: str = "") -> None:
        self.transcript = transcript
        self.turn = answer(1, text)
        transcript.show_turns([user(0), self.turn])

    def say(self, text: str) -> None:
        self.turn = replace(self.turn, text=self.turn.text + text)
        self.transcript.append_text(self.turn, 1)
        view = self.transcript.view(self.turn.id)
        assert isinstance(view, AnswerView)
        view.browser.flush()  # type: ignore[attr-defined]
        QApplication.processEvents()


def newest_button(transcript: Transcript) -> QPushButton:
    [button] = [b for b in transcript.findChildren(QPushButton) if b.text().startswith("↓")]
    return button


def at_bottom(transcript: Transcript) -> bool:
    bar = transcript.verticalScrollBar()
    return bar.value() == bar.maximum()


def lines(count: int) -> str:
    return "".join(f"Line number {number}\n\n" for number in range(count))


def test_it_follows_the_end(transcript: Transcript) -> None:
    stream = Stream(transcript)
    for _ in range(20):
        stream.say(lines(3))
        assert at_bottom(transcript)
    assert transcript.verticalScrollBar().maximum() > 0
    assert newest_button(transcript).isHidden()


@pytest.mark.parametrize("action", [Action.SliderSingleStepSub, Action.SliderPageStepSub, Action.SliderToMinimum])
def test_scrolling_up_ends_following_and_nothing_moves(transcript: Transcript, action: Action) -> None:
    stream = Stream(transcript, lines(100))
    bar = transcript.verticalScrollBar()
    bar.triggerAction(action)
    place = bar.value()
    assert not transcript.is_following
    for _ in range(20):
        stream.say(lines(2))
        assert bar.value() == place
    assert newest_button(transcript).isVisible()
    newest_button(transcript).click()
    assert at_bottom(transcript)
    stream.say(lines(5))
    assert at_bottom(transcript)


def test_the_wheel_counts_even_over_a_message(qtbot: QtBot, transcript: Transcript) -> None:
    Stream(transcript, lines(100))
    window = transcript.windowHandle()
    assert window is not None
    QTest.wheelEvent(window, QPointF(200, 200), QPoint(0, 120))
    assert not transcript.is_following
    assert not at_bottom(transcript)


def test_keys_scroll_even_when_a_message_has_the_focus(qtbot: QtBot, transcript: Transcript) -> None:
    stream = Stream(transcript, lines(100))
    view = transcript.view(stream.turn.id)
    assert view is not None
    qtbot.keyClick(view.browser, Qt.Key.Key_PageUp)
    assert not transcript.is_following


def test_reaching_the_bottom_follows_again(transcript: Transcript) -> None:
    stream = Stream(transcript, lines(100))
    bar = transcript.verticalScrollBar()
    bar.triggerAction(Action.SliderToMinimum)
    bar.triggerAction(Action.SliderToMaximum)
    assert transcript.is_following
    stream.say(lines(5))
    assert at_bottom(transcript)


def test_a_tail_that_shrinks_is_no_scrolling(transcript: Transcript) -> None:
    stream = Stream(transcript, lines(50) + "```\n" + "code\n" * 30)
    for piece in ("``", "`\n", "\n| a", " | b |\n|--", "-|---|\n", "| 1 | 2 |\n\n**bo", "ld** done"):
        stream.say(piece)
        assert transcript.is_following
        assert at_bottom(transcript)


def test_a_click_or_a_selection_never_scrolls(qtbot: QtBot, transcript: Transcript) -> None:
    stream = Stream(transcript, lines(100))
    bar = transcript.verticalScrollBar()
    bar.triggerAction(Action.SliderToMinimum)
    view = transcript.view(stream.turn.id)
    assert view is not None
    qtbot.mouseClick(view.browser.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(20, 40))
    qtbot.mouseDClick(view.browser.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(20, 40))
    assert bar.value() == 0
    assert view.browser.textCursor().hasSelection()


def test_sending_follows_again(transcript: Transcript) -> None:
    Stream(transcript, lines(100))
    transcript.verticalScrollBar().triggerAction(Action.SliderToMinimum)
    transcript.add_turn(user(2))
    assert transcript.is_following
    assert at_bottom(transcript)


def test_a_resize_keeps_the_end_in_view(qtbot: QtBot, transcript: Transcript) -> None:
    Stream(transcript, "word " * 3000)
    before = transcript.verticalScrollBar().maximum()
    transcript.resize(350, 400)
    qtbot.waitUntil(lambda: transcript.verticalScrollBar().maximum() > before)
    assert at_bottom(transcript)


def test_a_resize_keeps_the_message_that_is_read(transcript: Transcript) -> None:
    transcript.show_turns([answer(number, "word " * 300, TurnState.COMPLETE) for number in range(10)])
    read = transcript.views[4]
    transcript.verticalScrollBar().triggerAction(Action.SliderToMinimum)
    transcript.verticalScrollBar().setValue(read.y() + 3)
    transcript.resize(350, 400)
    QApplication.processEvents()
    assert read.mapTo(transcript.viewport(), QPoint(0, 0)).y() <= 0 < read.geometry().bottom()
    assert transcript._top_view() is read


def test_only_the_newest_messages_are_built_and_earlier_ones_on_demand(transcript: Transcript) -> None:
    turns = [user(number, f"Question {number}") for number in range(TURNS_AT_ONCE * 2 + 5)]
    transcript.show_turns(turns)
    assert [view.turn for view in transcript.views] == turns[-TURNS_AT_ONCE:]
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    transcript._set_following(following=False)
    top = transcript.views[TURNS_AT_ONCE // 2]
    place = top.mapTo(transcript, QPoint(0, 0)).y()
    transcript.show_earlier()
    assert [view.turn for view in transcript.views] == turns[-TURNS_AT_ONCE * 2 :]
    assert top.mapTo(transcript, QPoint(0, 0)).y() == place, "what is read stays where it is"
    transcript.show_earlier()
    assert [view.turn for view in transcript.views] == turns


def test_scrolling_to_the_top_shows_earlier_ones(qtbot: QtBot, transcript: Transcript) -> None:
    transcript.show_turns([user(number) for number in range(TURNS_AT_ONCE + 5)])
    transcript.verticalScrollBar().triggerAction(Action.SliderToMinimum)
    qtbot.waitUntil(lambda: len(transcript.views) == TURNS_AT_ONCE + 5)
    assert transcript.verticalScrollBar().value() > 0


def test_the_figures_under_an_answer() -> None:
    done = replace(answer(1, "x", TurnState.COMPLETE), stats=STATS)
    assert stats_line(done) == "48.2 tok/s · first token 0.14 s · 96 tokens · prompt 6 new, 64 cached"
    assert stats_line(replace(done, state=TurnState.STOPPED)).endswith(" · prompt 6 new, 64 cached · stopped")
    assert stats_line(answer(1, "", TurnState.STOPPED)) == "stopped before the first token"
    cut = replace(done, stats=replace(STATS, reason="length", cached_tokens=0, new_tokens=1))
    assert stats_line(cut) == "48.2 tok/s · first token 0.14 s · 1 token · prompt 70 new · reached the token limit"
    early = replace(done, state=TurnState.STOPPED, text="", stats=replace(STATS, ttft_s=None, tokens_per_s=None))
    assert "prompt" not in stats_line(early), "nobody knows how far it had come"
    tip = stats_tip(done)
    assert tip.startswith(stats_line(done))
    assert "had 70 tokens: 6 were computed, and 64 were still in the KV cache" in tip


def test_an_error_stands_where_the_answer_would_be_and_can_be_retried(transcript: Transcript) -> None:
    failed = replace(answer(1, "", TurnState.FAILED), message="No room & <b>nothing</b> to free.")
    transcript.show_turns([user(0), failed])
    retried: list[str] = []
    transcript.retry_requested.connect(retried.append)
    buttons = {b.text(): b for b in transcript.findChildren(QAbstractButton) if b.isVisible()}
    buttons["Retry"].click()
    assert retried == [failed.id]
    buttons["Copy details"].click()
    assert QGuiApplication.clipboard().text() == failed.message


def test_a_message_is_copied_as_it_was_written(transcript: Transcript) -> None:
    done = replace(answer(1, "**raw** `x`", TurnState.COMPLETE), stats=STATS)
    transcript.show_turns([user(0), done])
    [copy] = [b for b in transcript.findChildren(QAbstractButton) if b.accessibleName() == "Copy this answer"]
    copy.click()
    assert QGuiApplication.clipboard().text() == "**raw** `x`"


def test_huge_answers_are_folded_and_unfold_step_by_step(transcript: Transcript) -> None:
    text = "line of text\n\n" * (FOLD_CHARS * 2 // 14)
    transcript.show_turns([answer(0, text + "the end", TurnState.COMPLETE)])
    (view,) = transcript.views
    [more] = [b for b in view.findChildren(QAbstractButton) if b.isVisible() and "more characters" in b.text()]
    assert "the end" not in view.browser.toPlainText()
    while more.isVisible():
        more.click()
    assert view.browser.toPlainText().endswith("the end")
    view.copy_source()
    assert QGuiApplication.clipboard().text() == text + "the end"


def test_long_prompts_are_folded(transcript: Transcript) -> None:
    transcript.show_turns([user(0, "x" * FOLD_PROMPT_CHARS + "the end")])
    (view,) = transcript.views
    assert "the end" not in view.browser.toPlainText()
    [more] = [b for b in view.findChildren(QAbstractButton) if b.isVisible() and "more characters" in b.text()]
    more.click()
    assert "the end" in view.browser.toPlainText().replace("\u200b", "")


def test_prompts_are_never_markdown_or_html(transcript: Transcript) -> None:
    text = "# no **heading** <b>bold</b>\n  indented"
    transcript.show_turns([user(0, text)])
    assert transcript.views[0].browser.toPlainText() == text


def test_bubbles_are_as_wide_as_needed_and_never_wider_than_their_share(transcript: Transcript) -> None:
    transcript.show_turns([user(0, "Hi"), user(1, "word " * 200)])
    short, long = (view for view in transcript.views if isinstance(view, PromptView))
    assert short._bubble.width() < 80
    assert long._bubble.width() < transcript.width() * 0.8
    assert short._bubble.mapTo(transcript, QPoint(short._bubble.width(), 0)).x() == pytest.approx(
        long._bubble.mapTo(transcript, QPoint(long._bubble.width(), 0)).x()
    )
