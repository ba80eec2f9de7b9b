"""A whole program inside the test's process, with a scripted engine, ended in order afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtWidgets import QAbstractButton, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.desktop import Desktop
from app.opening import prepare
from app.options import WindowOptions
from tests.fakes.engine import Script

WAIT_MS = 20_000

OpenDesk = Callable[..., "Desk"]


class Desk:
    """The program, what drives it, and a few ways to look at it."""

    def __init__(self, qtbot: QtBot, script: Script, options: WindowOptions) -> None:
        opening = prepare(options)
        assert opening is not None
        self.qtbot = qtbot
        self.script = script
        self.desktop = Desktop(opening, load_engine=script.factory)
        self.window = self.desktop.window
        self.client = self.desktop.client

    def show(self) -> None:
        """Until the graphs are there."""
        self.window.show()
        self.wait(lambda: self.desktop.side.dashboard is not None)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds."""
        self.qtbot.waitUntil(condition, timeout=WAIT_MS)

    def find(self, kind: type[QWidget]) -> QWidget:
        """The only visible widget of a kind."""
        [found] = [widget for widget in self.window.findChildren(kind) if widget.isVisible()]
        return found

    def click(self, text: str) -> None:
        """Press the visible button with this text."""
        [button] = [b for b in self.window.findChildren(QAbstractButton) if b.isVisible() and b.text().startswith(text)]
        button.click()

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

    def open_desk(script: Script | None = None, *, model: str = "", data_dir: Path = folder) -> Desk:
        options = WindowOptions(data_dir=data_dir, model=model)
        desk = Desk(qtbot, script or Script(), options)
        opened.append(desk)
        desk.show()
        return desk

    yield open_desk
    for desk in opened:
        if not desk.desktop.shutdown.has_begun:
            desk.close()
