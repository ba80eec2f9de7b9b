"""The log file, and the hooks that let nothing end silently. Knows no window: what is to be shown goes to a callback.

Qt is imported only by `log_qt_messages`.
"""

import faulthandler
import logging
import platform
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TextIO

log = logging.getLogger(__name__)

MAX_BYTES = 1_000_000
BACKUPS = 3
FORMAT = "%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"

Report = Callable[[str, str], None]
"""Takes a sentence and its details; called in any thread."""


class Logs:
    """The program's log, open until `close`. Without a writable folder errors go to stderr."""

    def __init__(self, log_file: Path) -> None:
        self._files = ExitStack()
        self._crash_file: TextIO | None = None
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            self._handler: logging.Handler = RotatingFileHandler(
                log_file, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8"
            )
            self._crash_file = self._files.enter_context(log_file.with_suffix(".crash").open("w", encoding="utf-8"))
            self.path: Path | None = log_file
        except OSError:
            self._handler = logging.StreamHandler()
            self._handler.setLevel(logging.ERROR)
            self.path = None
        self._handler.setFormatter(logging.Formatter(FORMAT))
        root = logging.getLogger()
        root.addHandler(self._handler)
        root.setLevel(logging.INFO)
        self._faults_were_caught = faulthandler.is_enabled()
        faulthandler.enable(self._crash_file or sys.__stderr__ or sys.stderr)
        log.info("Python %s on %s", platform.python_version(), platform.platform())

    def close(self) -> None:
        """Write what is left and let go of the files."""
        faulthandler.disable()
        if self._faults_were_caught:
            faulthandler.enable(sys.__stderr__ or sys.stderr)
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()
        self._files.close()


class ExceptionHooks:
    """While installed, every uncaught exception of any thread is logged and reported."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._before = (sys.excepthook, threading.excepthook, sys.unraisablehook)

    def install(self) -> None:
        """Take the hooks over."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        sys.unraisablehook = self._on_unraisable

    def remove(self) -> None:
        """Give the hooks back."""
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._before

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._tell(kind, error, trace, "the window")

    def _on_thread_exception(self, arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_type is SystemExit or arguments.exc_value is None:
            return
        name = arguments.thread.name if arguments.thread is not None else "a thread"
        self._tell(arguments.exc_type, arguments.exc_value, arguments.exc_traceback, name)

    def _on_unraisable(self, arguments: "sys.UnraisableHookArgs") -> None:
        # Raised where nobody can catch it (a finaliser): worth a line in the log, no dialog.
        log.error("ignored in %r: %r", arguments.object, arguments.exc_value)

    def _tell(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None, where: str) -> None:
        details = "".join(traceback.format_exception(kind, error, trace))
        log.error("uncaught in %s\n%s", where, details)
        self._report(f"Something went wrong in {where}: {error or kind.__name__}", details)


def log_qt_messages(report: Report) -> Callable[[], None]:
    """Qt's own messages go to the log, critical ones are also reported. Returns what undoes it."""
    from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

    qt_log = logging.getLogger("qt")
    levels = {
        QtMsgType.QtDebugMsg: logging.DEBUG,
        QtMsgType.QtInfoMsg: logging.INFO,
        QtMsgType.QtWarningMsg: logging.WARNING,
        QtMsgType.QtCriticalMsg: logging.ERROR,
        QtMsgType.QtFatalMsg: logging.CRITICAL,
    }

    def take(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
        qt_log.log(levels.get(kind, logging.WARNING), "%s (%s)", message, context.category)
        if kind is QtMsgType.QtCriticalMsg:
            report(f"Qt reports a serious problem: {message}", f"{context.category}: {message}")

    before = qInstallMessageHandler(take)

    def undo() -> None:
        qInstallMessageHandler(before)

    return undo
