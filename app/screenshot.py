"""Draws the window to a file once everything that was waited for has happened. Knows no part of the window."""

import logging
from collections.abc import Iterable
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

log = logging.getLogger(__name__)

SETTLE_MS = 600  # several frames of every graph
DEADLINE_MS = 300_000


class Screenshot(QObject):
    """Waits for each of `awaited` to be noted, lets the window settle, and saves a picture of it.

    Signals:
        taken: a sentence about what went wrong; empty when the file is there.
    """

    taken = Signal(str)

    def __init__(self, window: QWidget, path: Path, awaited: Iterable[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._window = window
        self._path = path
        self._awaited = set(awaited)
        self._settle = QTimer(self, singleShot=True, interval=SETTLE_MS)
        self._settle.timeout.connect(self._take)
        self._deadline = QTimer(self, singleShot=True, interval=DEADLINE_MS)
        self._deadline.timeout.connect(self._give_up)
        self._deadline.start()

    def note(self, event: str) -> None:
        """`event` has happened; unknown ones and repetitions are ignored."""
        if event in self._awaited:
            self._awaited.discard(event)
            if not self._awaited:
                self._settle.start()

    @Slot()
    def _take(self) -> None:
        self._deadline.stop()
        saved = self._window.grab().save(str(self._path), "PNG")
        self.taken.emit("" if saved else f"The screenshot could not be written to {self._path}. Name another file.")

    @Slot()
    def _give_up(self) -> None:
        missing = ", ".join(sorted(self._awaited))
        self.taken.emit(f"No screenshot was made: after {DEADLINE_MS // 1000} s this had not happened: {missing}.")
