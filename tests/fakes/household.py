"""Real processes for the tests: everything that is started here is ended and collected here."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from app.gpu.process_table import ProcessEntry, ProcessTable
from app.gpu.processes import ProcessReader
from app.gpu.protect import described
from app.gpu.record import ProcessMemory

T = TypeVar("T")
PR_SET_CHILD_SUBREAPER = 36

IGNORES_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
)
HOLDS_MEMORY = "import signal; held = b'x' * ({mib} << 20); print('ready', flush=True); signal.pause()"


class Household:
    """Starts processes, and knows a stand-in for KVScope, so that the test's children are not "its own tree"."""

    def __init__(self) -> None:
        self._strangers = _own_children()
        self._children: list[subprocess.Popen[bytes]] = []
        _adopt_orphans(1)
        self.kvscope = self.start("sleep", "600")
        self.kvscope_pid = self.kvscope.pid

    def start(self, *command: str, **options: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
        self._children.append(child)
        return child

    def python(self, code: str) -> subprocess.Popen[bytes]:
        """A Python process that has printed its first line."""
        child = self.start(sys.executable, "-c", code)
        assert child.stdout is not None
        assert child.stdout.readline(), "the child said nothing"
        return child

    def table(self) -> ProcessTable:
        return ProcessReader(own_pid=self.kvscope_pid).read()

    def entry(self, pid: int) -> ProcessEntry:
        return self.table().entries[pid]

    def row(self, pid: int, memory_bytes: int | None = 0) -> ProcessMemory:
        table = self.table()
        return described(table.entries[pid], table, memory_bytes)

    def children_of(self, pid: int) -> list[ProcessEntry]:
        return [entry for entry in self.table() if entry.parent_pid == pid and entry.state != "Z"]

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        while orphans := _own_children() - self._strangers:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        _adopt_orphans(0)


def _own_children() -> set[int]:
    return {entry.pid for entry in ProcessReader().read() if entry.parent_pid == os.getpid()}


def _adopt_orphans(on: int) -> None:
    """Grandchildren whose parent is gone become ours, so that we can collect them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


def eventually(look: Callable[[], T], *, within_s: float = 20) -> T:
    """The first true answer of `look`; for what another process does in its own time."""
    end_s = time.monotonic() + within_s
    while not (answer := look()):
        assert time.monotonic() < end_s, "it never happened"
        select.select([], [], [], 0.01)
    return answer
