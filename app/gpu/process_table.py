"""All processes at one moment, as values. Who reads them is `processes`, who judges them is `protect`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.gpu.record import ProcessIdentity, ProcessKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEntry:
    """One process as /proc shows it.

    Attributes:
        state: one letter: R, S, D (waits in the kernel), T (stopped), Z (exited, not collected), I (idle).
        name: for people; the kernel's short name, completed from the command line where it was cut.
        command: the whole command line; empty for kernel threads and where it may not be read.
        uid: the effective user.
        role: what it is, apart from whose it is.
        anonymous_bytes: resident memory that belongs to no file and is not shared memory.
    """

    identity: ProcessIdentity
    parent_pid: int
    state: str
    name: str
    command: str
    uid: int
    user: str
    role: ProcessKind
    is_kernel_thread: bool
    anonymous_bytes: int

    @property
    def pid(self) -> int:
        """The number alone; it names a process only together with its start."""
        return self.identity.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """All processes at one moment, seen from KVScope's own process.

    Attributes:
        own_tree: PIDs of KVScope and of everything it started.
        ancestors: PIDs of everything that KVScope runs inside of.
    """

    entries: Mapping[int, ProcessEntry]
    own_pid: int
    own_uid: int
    own_tree: frozenset[int]
    ancestors: frozenset[int]

    @classmethod
    def of(cls, entries: Mapping[int, ProcessEntry], *, own_pid: int, own_uid: int) -> "ProcessTable":
        """The table of `entries`, with the tree around `own_pid` worked out."""
        return cls(
            entries=entries,
            own_pid=own_pid,
            own_uid=own_uid,
            own_tree=frozenset(_descendants(entries, own_pid)),
            ancestors=frozenset(_ancestors(entries, own_pid)),
        )

    def __iter__(self) -> Iterator[ProcessEntry]:
        return iter(self.entries.values())

    def find(self, identity: ProcessIdentity) -> ProcessEntry | None:
        """The process itself, not another one that has its PID now."""
        entry = self.entries.get(identity.pid)
        return entry if entry is not None and entry.identity == identity else None


def _descendants(entries: Mapping[int, ProcessEntry], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for child, entry in entries.items():
        children.setdefault(entry.parent_pid, []).append(child)
    found: set[int] = set()
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def _ancestors(entries: Mapping[int, ProcessEntry], pid: int) -> set[int]:
    found: set[int] = set()
    entry = entries.get(pid)
    while entry is not None and entry.parent_pid not in found and entry.parent_pid != 0:
        found.add(entry.parent_pid)
        entry = entries.get(entry.parent_pid)
    return found
