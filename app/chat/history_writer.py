"""The one thread that writes the history. No Qt.

It takes writes from a queue, puts all that has gathered into one transaction, and holds the newest state of what
changes quickly (an answer that streams, a draft that is typed) until a period is over. A transaction that fails is
kept and tried again with the next one.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from app.chat.history_file import HistoryError, explaining

log = logging.getLogger(__name__)

QUICK_PERIOD_S = 0.5
CHECKPOINT_AFTER_S = 5.0
RETRY_AFTER_S = 5.0
CLOSE_TIMEOUT_S = 4.0

Write = Callable[[sqlite3.Connection], None]


class _Wake:
    """Look at what changes quickly."""


class _Close:
    """Write everything and end."""


class HistoryWriter:
    """Owns the writing connection from `start` on.

    Attributes:
        failure: why the last transaction did not succeed; None once all is written.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self.failure: HistoryError | None = None
        self._connection = connection
        self._path = path
        self._queue: SimpleQueue[Write | threading.Event | _Wake | _Close] = SimpleQueue()
        self._lock = threading.Lock()
        self._quick: dict[str, Write] = {}  # guarded by the lock
        self._pending: list[Write] = []
        self._barriers: list[threading.Event] = []
        self._quick_due_s: float | None = None
        self._checkpoint_due_s: float | None = None
        self._retry_due_s: float | None = None
        self._closing = False
        # A daemon: a program that fails before it closes the history must end all the same.
        self._thread = threading.Thread(target=self._run, name="history-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, write: Write, *, instead_of: str = "") -> None:
        """Hand over a write, which must be safe to repeat; what was put for that key and still waits is dropped."""
        with self._lock:
            self._quick.pop(instead_of, None)
            self._queue.put(write)

    def put_quick(self, key: str, write: Write) -> None:
        """Hand over a write that the next one of this key will replace soon."""
        with self._lock:
            first = not self._quick
            self._quick[key] = write
        if first:
            self._queue.put(_Wake())

    def flush(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait until everything handed over so far was tried."""
        done = threading.Event()
        self._queue.put(done)
        if self._thread.is_alive():
            done.wait(timeout_s)

    def close(self) -> None:
        """Write everything and end the thread."""
        if self._thread.is_alive():
            self._queue.put(_Close())
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._closing:
            self._take()
            if self._is_due(self._quick_due_s) or self._barriers or self._closing:
                self._take_quick()
            if self._pending and (self.failure is None or self._is_due(self._retry_due_s) or self._closing):
                self._write()
            if self._is_due(self._checkpoint_due_s):
                self._checkpoint("PASSIVE")
            while self._barriers:
                self._barriers.pop().set()
        self._checkpoint("TRUNCATE")
        self._connection.close()

    def _take(self) -> None:
        """Wait for work or for the next thing that is due, then take all there is."""
        dues = [due for due in (self._quick_due_s, self._checkpoint_due_s, self._retry_due_s) if due is not None]
        timeout_s = max(0.0, min(dues) - time.monotonic()) if dues else None
        try:
            self._sort(self._queue.get(timeout=timeout_s))
            while True:
                self._sort(self._queue.get_nowait())
        except Empty:
            return

    def _sort(self, item: "Write | threading.Event | _Wake | _Close") -> None:
        match item:
            case _Wake():
                if self._quick_due_s is None:
                    self._quick_due_s = time.monotonic() + QUICK_PERIOD_S
            case _Close():
                self._closing = True
            case threading.Event():
                self._barriers.append(item)
            case _:
                self._pending.append(item)

    def _take_quick(self) -> None:
        with self._lock:
            writes, self._quick = self._quick, {}
        self._quick_due_s = None
        self._pending += writes.values()

    def _write(self) -> None:
        try:
            with explaining(self._path):
                self._transact()
        except HistoryError as error:
            log.error("writing the history failed: %s", error)  # noqa: TRY400 - the sentence is enough
            self.failure = error
            self._retry_due_s = time.monotonic() + RETRY_AFTER_S
        else:
            self.failure = None
            self._pending.clear()
            self._retry_due_s = None
            self._checkpoint_due_s = time.monotonic() + CHECKPOINT_AFTER_S

    def _transact(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for write in self._pending:
                write(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _checkpoint(self, mode: str) -> None:
        self._checkpoint_due_s = None
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error as error:
            log.warning("checkpoint of the history failed: %s", error)

    @staticmethod
    def _is_due(due_s: float | None) -> bool:
        return due_s is not None and time.monotonic() >= due_s
