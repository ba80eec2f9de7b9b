"""Ending the program: in stages, once, within a deadline, and never by force on a thread.

It knows workers as something that can be told to stop and asked whether it still runs. Signals of the operating
system arrive here too.
"""

import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication, QDialog

log = logging.getLogger(__name__)

DEADLINE_S = 4.0
POLL_MS = 20
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Worker:
    """Something that runs beside the window and ends a while after it was told to."""

    name: str
    stop: Callable[[], None]
    is_running: Callable[[], bool]


class Shutdown(QObject):
    """Refuse new work, close dialogs, stop the workers, wait for them, save, and say that all is done.

    Args:
        refuse: no new prompts from here on.
        workers: stopped in this order, waited for together.
        save: called once, after the workers have ended or the deadline has passed.

    Signals:
        begun: the first stage has begun.
        ended: everything is saved. The value tells whether every worker has ended; if not, only leaving the process
            without running destructors is left.
    """

    begun = Signal()
    ended = Signal(bool)

    def __init__(
        self,
        *,
        refuse: Callable[[], None],
        workers: Sequence[Worker],
        save: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._refuse = refuse
        self._workers = tuple(workers)
        self._save = save
        self._clock = clock
        self._has_begun = False
        self._deadline_s = 0.0
        self._poll = QTimer(self, interval=POLL_MS)
        self._poll.timeout.connect(self._check)

    @property
    def has_begun(self) -> bool:
        """Whether the program is on its way out."""
        return self._has_begun

    @Slot()
    def begin(self) -> None:
        """Start ending; repetitions do nothing."""
        if self._has_begun:
            return
        self._has_begun = True
        self._deadline_s = self._clock() + DEADLINE_S
        self.begun.emit()
        _attempt("refusing new work", self._refuse)
        _attempt("closing dialogs", close_dialogs)
        for worker in self._workers:
            _attempt(f"stopping {worker.name}", worker.stop)
        self._poll.start()
        self._check()

    @Slot()
    def _check(self) -> None:
        late = [worker.name for worker in self._workers if worker.is_running()]
        if late and self._clock() < self._deadline_s:
            return
        self._poll.stop()
        if late:
            log.error("still running after %.0f s: %s", DEADLINE_S, ", ".join(late))
        _attempt("saving", self._save)
        self.ended.emit(not late)


def close_dialogs() -> None:
    """Answer every open dialog with "cancel", so that none keeps the program alive."""
    for widget in QApplication.topLevelWidgets():
        if isinstance(widget, QDialog) and widget.isVisible():
            # Not reject(): a dialog may take that for "one page back".
            widget.done(QDialog.DialogCode.Rejected)


def _attempt(what: str, action: Callable[[], None]) -> None:
    """A stage that fails must not keep the later ones from happening."""
    try:
        action()
    except Exception:
        log.exception("%s failed", what)


class SignalWatcher(QObject):
    """Turns the first SIGINT, SIGTERM or SIGHUP into `arrived`; the second one ends the process as if nobody asked.

    A signal that the process was started with as ignored (nohup) stays ignored.

    Python runs its handlers between byte codes, and Qt's loop executes none while it waits; the interpreter therefore
    writes the number of each signal to a socket that the loop listens to.
    """

    arrived = Signal(int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._notifier = QSocketNotifier(self._reader.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_readable)
        self._before_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        heeded = [number for number in END_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._on_signal) for number in heeded}

    def close(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before_fd)
        self._notifier.setEnabled(False)
        self._reader.close()
        self._writer.close()

    @Slot()
    def _on_readable(self) -> None:
        try:
            numbers = self._reader.recv(64)
        except BlockingIOError:
            return
        for number in numbers:
            if number in self._before:
                log.info("%s arrived", signal.Signals(number).name)
                self.arrived.emit(number)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
