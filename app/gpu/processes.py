"""Who runs on this machine: one look at /proc, again and again.

Owns the reading and the cache of what does not change. Knows neither memory devices nor what may be ended.
Formats: proc_pid_stat(5), proc_pid_statm(5), proc_pid_status(5).
"""

import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from app.gpu.display import display_sockets, holds_any
from app.gpu.owners import COMM_LENGTH, role_of
from app.gpu.process_table import ProcessEntry, ProcessTable
from app.gpu.record import ProcessIdentity, ProcessKind

_KERNEL_THREAD_FLAG = 0x00200000  # PF_KTHREAD, include/linux/sched.h
_EFFECTIVE_UID = re.compile(rb"^Uid:\s+\d+\s+(\d+)", re.MULTILINE)
_READ_BYTES = 1 << 16


class _Stat(NamedTuple):
    """The part of /proc/PID/stat that we use."""

    start_ticks: int
    comm: bytes
    state: str
    parent_pid: int
    is_kernel_thread: bool
    has_memory: bool

    @classmethod
    def parse(cls, line: bytes) -> "_Stat":
        # The name may hold blanks and parentheses: the last ")" ends it.
        end = line.rindex(b")")
        fields = line[end + 2 :].split(None, 22)
        return cls(
            start_ticks=int(fields[19]),
            comm=line[line.index(b"(") + 1 : end],
            state=fields[0].decode("ascii"),
            parent_pid=int(fields[1]),
            is_kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD_FLAG),
            has_memory=fields[21] != b"0",
        )


@dataclass(slots=True)
class _Known:
    """What was read of a process before. Its facts are taken as settled from the second look on."""

    line: bytes
    entry: ProcessEntry
    comm: bytes
    settled: bool


class ProcessReader:
    """Reads the table again and again, cheaply: names, users and command lines are kept by (PID, start).

    They are read at the first two looks, since a process that was just forked still carries its parent's
    command line, and again when its name changes.
    """

    def __init__(
        self,
        *,
        own_pid: int | None = None,
        own_uid: int | None = None,
        root: Path = Path("/proc"),
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._own_uid = os.geteuid() if own_uid is None else own_uid
        self._root = str(root)
        self._display = display_sockets(environment, self._root)
        self._known: dict[int, _Known] = {}
        self._users: dict[int, str] = {}
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> ProcessTable:
        """Everybody who is there now. A process that ends while we read is left out."""
        known: dict[int, _Known] = {}
        for name in os.listdir(self._root):
            if name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    known[int(name)] = self._look(int(name))
        self._known = known
        entries = {pid: process.entry for pid, process in known.items()}
        return ProcessTable.of(entries, own_pid=self._own_pid, own_uid=self._own_uid)

    def _look(self, pid: int) -> _Known:
        folder = f"{self._root}/{pid}"
        line = _read(f"{folder}/stat")
        known = self._known.get(pid)
        # The line counts page faults and resident pages: where it is the same, so is everything that we know.
        if known is not None and known.settled and known.line == line:
            return known
        stat = _Stat.parse(line)
        anonymous_bytes = self._anonymous_bytes(folder) if stat.has_memory else 0
        if known is None or known.entry.identity.start_ticks != stat.start_ticks or known.comm != stat.comm:
            return _Known(line, self._entry(folder, pid, stat, anonymous_bytes), stat.comm, settled=False)
        if not known.settled:
            return _Known(line, self._entry(folder, pid, stat, anonymous_bytes), stat.comm, settled=True)
        known.line, known.entry = line, _updated(known.entry, stat, anonymous_bytes)
        return known

    def _entry(self, folder: str, pid: int, stat: _Stat, anonymous_bytes: int) -> ProcessEntry:
        comm = _text(stat.comm)
        arguments = _arguments(folder)
        base = os.path.basename(arguments[0]) if arguments else ""
        command = " ".join(arguments)
        names = {comm, base, os.path.basename(_link(f"{folder}/exe"))}
        uid = _effective_uid(folder)
        return ProcessEntry(
            identity=ProcessIdentity(pid=pid, start_ticks=stat.start_ticks),
            parent_pid=stat.parent_pid,
            state=stat.state,
            name=base if len(stat.comm) >= COMM_LENGTH and base.startswith(comm) else comm,
            command=command,
            uid=uid,
            user=self._user(uid),
            role=ProcessKind.SERVICE if stat.is_kernel_thread else self._role(names, command, folder),
            is_kernel_thread=stat.is_kernel_thread,
            anonymous_bytes=anonymous_bytes,
        )

    def _role(self, names: set[str], command: str, folder: str) -> ProcessKind:
        role = _role(names, command, folder)
        serves_us = role is not ProcessKind.DESKTOP and holds_any(folder, self._display)
        return ProcessKind.DESKTOP if serves_us else role

    def _anonymous_bytes(self, folder: str) -> int:
        resident, file_or_shared = _read(f"{folder}/statm").split()[1:3]
        return max(int(resident) - int(file_or_shared), 0) * self._page_bytes

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]


def _updated(entry: ProcessEntry, stat: _Stat, anonymous_bytes: int) -> ProcessEntry:
    if (entry.state, entry.parent_pid, entry.anonymous_bytes) == (stat.state, stat.parent_pid, anonymous_bytes):
        return entry
    return replace(entry, state=stat.state, parent_pid=stat.parent_pid, anonymous_bytes=anonymous_bytes)


def _role(names: set[str], command: str, folder: str) -> ProcessKind:
    try:
        cgroup = _read(f"{folder}/cgroup").decode("utf-8", "replace").strip()
    except OSError:
        cgroup = ""
    return role_of(names=names, command=command, cgroup=cgroup)


def _arguments(folder: str) -> list[str]:
    try:
        line = _read(f"{folder}/cmdline").rstrip(b"\0")
    except OSError:
        return []
    return [_text(argument) for argument in line.split(b"\0")] if line else []


def _text(raw: bytes) -> str:
    """What a process calls itself, made harmless: it may hold escape sequences for whoever prints it."""
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def _effective_uid(folder: str) -> int:
    found = _EFFECTIVE_UID.search(_read(f"{folder}/status"))
    if found is None:
        raise ValueError(folder)
    return int(found[1])


def _link(path: str) -> str:
    try:
        return os.readlink(path).removesuffix(" (deleted)")
    except OSError:
        return ""


def _read(path: str) -> bytes:
    # A third of the time of open(): this runs several hundred times a second.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)
