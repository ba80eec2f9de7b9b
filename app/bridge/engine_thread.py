"""The thread that owns the engine, and every tensor in it, from creation to close.

It has no slots and no event loop: commands come through a queue, events leave through a sink.
"""

import logging
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue

from PySide6.QtCore import QObject, QThread

from engine.commands import Command
from engine.events import EngineEvent
from engine.loop import EngineFactory, EngineLoop

log = logging.getLogger(__name__)


class EngineThread(QThread):
    """Runs one `EngineLoop` until it is told to stop.

    Args:
        sink: receives every event, in this thread; must not block.
        load_engine: builds an engine; None takes the real one.

    Attributes:
        commands: filled by any thread.
        death: traceback of what ended the loop against its promise; empty otherwise. Read it when finished.
    """

    def __init__(
        self,
        sink: Callable[[EngineEvent], None],
        load_engine: EngineFactory | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("engine")
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self.death = ""
        self._sink = sink
        self._load_engine = load_engine

    def run(self) -> None:
        """Serve commands until Stop."""
        threading.current_thread().name = self.objectName()  # for the log
        try:
            EngineLoop(self.commands, self._sink, self._load_engine).run()
        except BaseException:  # noqa: BLE001 - the window must live on and say so
            self.death = traceback.format_exc()
            log.critical("the engine's thread died\n%s", self.death)
