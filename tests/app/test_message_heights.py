"""Messages in the real window keep all their rows while its width changes: by keys, by its edge, by a pane's edge."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QSplitter
from pytestqt.qtbot import QtBot

from app.chat.controller import ChatController
from app.chat.conversation import TurnState
from app.chat.conversation_list import ConversationList
from app.chat.history import History
from app.chat.message_view import MessageView
from app.chat.pane import ChatPane
from app.theme import Theme
from app.window import MainWindow
from tests.app.chat.conftest import theme
from tests.app.chat.test_transcript import STATS, answer, user
from tests.fakes.engine_client import FakeEngineClient

__all__ = ["theme"]

PROSE = "A dumpling of rice that is sweet as a rule, and goes well with a cup of tea in the afternoon. "
CODE = "```python\nprint('a line that is a good deal longer than a narrow pane is wide, so it has to be broken')\n```\n"
TABLE = "| river | sea |\n|---|---|\n| the Danube, which is long | the Black Sea, which is far away |\n"


@pytest.fixture
def pane(qtbot: QtBot, theme: Theme) -> Iterator[ChatPane]:
    history = History.unsaved()
    controller = ChatController(FakeEngineClient(), history)
    window, pane = MainWindow(), ChatPane(controller, theme)
    window.set_list(ConversationList(controller))
    window.set_chat(pane)
    qtbot.addWidget(window, before_close_func=MainWindow.finish)
    window.resize(1440, 900)
    with qtbot.waitSignal(window.painted):
        window.show()
    controller.send("shown")
    pane.transcript.show_turns(
        [
            user(0, PROSE * 4),
            replace(answer(1, PROSE * 3, TurnState.COMPLETE), stats=STATS),
            user(2),
            replace(answer(3, f"{CODE}\n{PROSE}\n\n{TABLE}", TurnState.STOPPED), stats=STATS),
            user(4),
            replace(answer(5, PROSE, TurnState.FAILED), message=PROSE * 2),
        ]
    )
    QApplication.processEvents()
    yield pane
    controller.close()
    history.close()


def window_of(pane: ChatPane) -> MainWindow:
    window = pane.window()
    assert isinstance(window, MainWindow)
    return window


def bottom_row_px(view: MessageView) -> int:
    """Where the lowest thing that can be seen or pressed in a message ends."""
    children = [*view.findChildren(QAbstractButton), *view.findChildren(QLabel), view.browser]
    return max(child.mapTo(view, QPoint(0, child.height())).y() for child in children if child.isVisible())


def needed_px(view: MessageView) -> int:
    return view.heightForWidth(view.width()) if view.hasHeightForWidth() else view.sizeHint().height()


def check_nothing_is_cut(pane: ChatPane) -> None:
    QApplication.processEvents()
    transcript = pane.transcript
    end = 0
    for view in transcript.views:
        assert view.browser.height() >= view.browser.document().size().height()
        assert bottom_row_px(view) <= view.height(), f"cut at {window_of(pane).width()} px: {view.turn.id}"
        assert view.height() == needed_px(view)
        assert view.y() > end, "it begins below the one before"
        end = view.geometry().bottom()
    column = transcript.widget()
    assert end < column.height()
    assert transcript.verticalScrollBar().maximum() == max(0, column.height() - transcript.viewport().height())


def test_f9_there_and_back(pane: ChatPane) -> None:
    check_nothing_is_cut(pane)
    for _ in range(4):
        window_of(pane).toggle_dashboard()
        check_nothing_is_cut(pane)


@pytest.mark.parametrize("step", [-1, 1])
def test_the_windows_edge_both_ways(pane: ChatPane, step: int) -> None:
    for width in (640, 760, 899, 900, 901, 1000, 1100, 1280, 1440, 1920)[::step]:
        window_of(pane).resize(width, 700)
        check_nothing_is_cut(pane)
    window_of(pane).resize(900 if step > 0 else 1440, 480)
    check_nothing_is_cut(pane)


def test_a_panes_edge(pane: ChatPane) -> None:
    [splitter] = [found for found in window_of(pane).findChildren(QSplitter) if found.isAncestorOf(pane)]
    for chat in (330, 500, 420, 800, 333, 700, 340):
        splitter.setSizes([200, chat, 1200 - chat])
        check_nothing_is_cut(pane)


@pytest.mark.parametrize("change", [MainWindow.toggle_dashboard, lambda window: window.resize(700, 600)])
def test_while_the_chat_is_not_in_sight(pane: ChatPane, change: Callable[[MainWindow], None]) -> None:
    """A conversation that comes back into view after the width has changed."""
    stack = pane._stack
    stack.setCurrentWidget(pane.empty)
    change(window_of(pane))
    QApplication.processEvents()
    stack.setCurrentWidget(pane.transcript)
    check_nothing_is_cut(pane)
