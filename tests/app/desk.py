"""A whole program inside the test's process, with a scripted engine, ended in order afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLabel, QPlainTextEdit, QTextEdit
from pytestqt.qtbot import QtBot

from app.desktop import Desktop
from app.models.starter_fetch import Fetch
from app.opening import prepare
from app.options import WindowOptions
from engine.catalog.fetch import Cancelled, FetchError, OnProgress
from engine.events import EngineState
from engine.loop import EngineFactory
from tests.fakes.engine import Script

WAIT_MS = 20_000

OpenDesk = Callable[..., "Desk"]


def no_network(_cache_dir: Path, _on_progress: OnProgress, _cancelled: Cancelled) -> Path:
    raise FetchError("The starter", "the package index could not be reached", "Open a file instead.")


class Desk:
    """The program, what drives it, and a few ways to look at it."""

    def __init__(
        self,
        qtbot: QtBot,
        script: Script,
        options: WindowOptions,
        load_engine: EngineFactory | None,
        fetch: Fetch = no_network,
    ) -> None:
        opening = prepare(options)
        assert opening is not None
        self.qtbot = qtbot
        self.script = script
        self.desktop = Desktop(opening, load_engine=load_engine or script.factory, fetch=fetch)
        self.window = self.desktop.window
        self.client = self.desktop.client

    def show(self) -> None:
        """Until the graphs are there."""
        self.window.show()
        self.wait(lambda: self.desktop.side.dashboard is not None)

    def wait_ready(self) -> None:
        """Until a model is loaded."""
        self.wait(lambda: self.client.status.state is EngineState.READY)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds."""
        self.qtbot.waitUntil(condition, timeout=WAIT_MS)

    def click(self, text: str) -> None:
        """Press the visible button with this text."""
        [button] = [b for b in self.window.findChildren(QAbstractButton) if b.isVisible() and b.text().startswith(text)]
        button.click()

    def type(self, text: str) -> None:
        """Type where the keyboard goes: into the prompt."""
        field = self.window.focusWidget()
        assert isinstance(field, QPlainTextEdit), field
        QTest.keyClicks(field, text)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        """Press a key where the keyboard goes."""
        QTest.keyClick(self.window.focusWidget() or self.window, key, modifier)

    def ask(self, prompt: str) -> None:
        """Type a prompt and send it."""
        self.type(prompt)
        self.press(Qt.Key.Key_Return)

    @property
    def transcript(self) -> str:
        """All text of the conversation in view, as it is shown."""
        pane = self.desktop.chat.pane
        return "\n".join(view.toPlainText() for view in pane.findChildren(QTextEdit) if view.isVisible())

    @property
    def titles(self) -> list[str]:
        """The conversations in the list, from top to bottom."""
        model = self.desktop.chat.list.view.model()
        return [model.index(row, 0).data() for row in range(model.rowCount())]

    def choose(self, title: str) -> None:
        """Click a conversation in the list."""
        view = self.desktop.chat.list.view
        row = self.titles.index(title)
        place = view.visualRect(view.model().index(row, 0)).center()
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)

    @property
    def texts(self) -> list[str]:
        """Every visible label."""
        return [label.text() for label in self.window.findChildren(QLabel) if label.isVisible()]

    def close(self) -> None:
        """End everything in stages, and wait for it."""
        with self.qtbot.waitSignal(self.desktop.shutdown.ended, timeout=WAIT_MS):
            self.window.close()
        self.desktop.close()
        assert not self.client.is_running
        assert not self.desktop.side.is_running


@contextmanager
def open_desks(qtbot: QtBot, folder: Path) -> Iterator[OpenDesk]:
    """Opens programs with this data folder; closes those that are open at the end."""
    opened: list[Desk] = []

    def open_desk(
        script: Script | None = None,
        *,
        model: str = "",
        scenario: str = "",
        data_dir: Path = folder,
        load_engine: EngineFactory | None = None,
        fetch: Fetch = no_network,
        **engine: str,
    ) -> Desk:
        options = WindowOptions(data_dir=data_dir, model=model, scenario=scenario, **engine)
        desk = Desk(qtbot, script or Script(), options, load_engine, fetch)
        opened.append(desk)
        desk.show()
        return desk

    yield open_desk
    for desk in opened:
        if not desk.desktop.shutdown.has_begun:
            desk.close()
