"""One window per data folder: a second start raises the first one.

The lock is the kernel's (flock), so a first instance that died leaves nothing to clean up. The socket beside it is
only for saying "come to the front".
"""

import fcntl
import hashlib
import logging
import os
from pathlib import Path
from typing import IO

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

log = logging.getLogger(__name__)

LOCK_NAME = "kvscope.lock"
ANSWER_MS = 3000


class Instance(QObject):
    """The claim of this process on a data folder. `claim` first, then `listen` or `raise_other`.

    Signals:
        raise_asked: another start wants this window at the front.
    """

    raise_asked = Signal()

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = folder.resolve()
        self._lock: IO[str] | None = None
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    @property
    def address(self) -> str:
        """Name of the socket: short whatever the folder's path."""
        digest = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:16]
        return f"kvscope-{os.getuid()}-{digest}"

    def claim(self) -> bool:
        """Take the folder; False when another process has it. A folder that cannot be written is nobody's."""
        try:
            lock = (self._folder / LOCK_NAME).open("a", encoding="utf-8")
        except OSError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._lock = lock
        return True

    def listen(self) -> None:
        """Be reachable for later starts. Only after a successful claim."""
        if self._lock is None:
            return
        QLocalServer.removeServer(self.address)  # a socket of an instance that died
        if not self._server.listen(self.address):
            log.warning("a second start cannot reach this window: %s", self._server.errorString())

    def raise_other(self) -> bool:
        """Ask the instance that has the folder to come to the front; False when it does not answer."""
        socket = QLocalSocket()
        socket.connectToServer(self.address)
        reached = socket.waitForConnected(ANSWER_MS) and socket.waitForReadyRead(ANSWER_MS)
        socket.abort()
        return reached

    def release(self) -> None:
        """Let go of the folder."""
        self._server.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @Slot()
    def _on_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            socket.write(b"raised\n")
            socket.flush()
            self.raise_asked.emit()
