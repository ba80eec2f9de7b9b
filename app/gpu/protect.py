"""Why a process is not offered for ending. Decides; neither reads nor ends."""

from collections.abc import Iterable, Mapping

from app.gpu.process_table import ProcessEntry, ProcessTable
from app.gpu.record import ProcessIdentity, ProcessKind, ProcessMemory

EXITED_STATES = frozenset("ZX")


def protection_of(entry: ProcessEntry, table: ProcessTable) -> str:
    """The reason, to be read after "is" or in a column of its own; empty when the process may be ended."""
    return _place_in_tree(entry, table) or _nature(entry) or _ownership(entry, table) or _role(entry)


def _place_in_tree(entry: ProcessEntry, table: ProcessTable) -> str:
    if entry.pid == table.own_pid:
        return "KVScope itself"
    if entry.pid in table.own_tree:
        return "a part of KVScope, which started it"
    if entry.pid == 1:
        return "the first process of the system (PID 1)"
    if entry.pid in table.ancestors:
        return "what KVScope was started from"
    return ""


def _nature(entry: ProcessEntry) -> str:
    if entry.is_kernel_thread:
        return "a kernel thread"
    if entry.state in EXITED_STATES:
        return f"no longer running: it has exited and only waits for its parent (PID {entry.parent_pid}) to collect it"
    return ""


def _ownership(entry: ProcessEntry, table: ProcessTable) -> str:
    return "" if entry.uid == table.own_uid else f"owned by the user {entry.user}; ask them to end it"


def _role(entry: ProcessEntry) -> str:
    return "needed by the desktop or the system" if entry.role is ProcessKind.DESKTOP else ""


def kind_of(entry: ProcessEntry, table: ProcessTable) -> ProcessKind:
    """What a process is, seen from here: another user's application is above all another user's."""
    if entry.pid in table.own_tree:
        return ProcessKind.OWN
    if entry.role is ProcessKind.APPLICATION and entry.uid != table.own_uid:
        return ProcessKind.OTHER_USER
    return ProcessKind.SERVICE if entry.pid == 1 else entry.role


def described(entry: ProcessEntry, table: ProcessTable, memory_bytes: int | None) -> ProcessMemory:
    """The value that travels: the process, what it holds, and whether it may be ended."""
    return ProcessMemory(
        identity=entry.identity,
        name=entry.name,
        user=entry.user,
        command=entry.command,
        memory_bytes=memory_bytes,
        kind=kind_of(entry, table),
        protected_because=protection_of(entry, table),
    )


class Describer:
    """Describes the same processes again and again: who has not changed gets the same value as last time."""

    def __init__(self) -> None:
        self._family: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
        self._known: dict[ProcessIdentity, tuple[ProcessEntry, ProcessMemory]] = {}

    def describe(self, shares: Iterable[tuple[ProcessEntry, int]], table: ProcessTable) -> list[ProcessMemory]:
        """The values for entries of `table` with what each of them holds, in that order."""
        family = (table.own_tree, table.ancestors)
        before = self._known if family == self._family else {}
        self._family, self._known = family, {}
        return [self._describe(entry, table, share, before) for entry, share in shares]

    def _describe(
        self,
        entry: ProcessEntry,
        table: ProcessTable,
        memory_bytes: int,
        before: Mapping[ProcessIdentity, tuple[ProcessEntry, ProcessMemory]],
    ) -> ProcessMemory:
        known = before.get(entry.identity)
        if known is None or known[0] is not entry or known[1].memory_bytes != memory_bytes:
            known = (entry, described(entry, table, memory_bytes))
        self._known[entry.identity] = known
        return known[1]


def not_visible(pid: int, memory_bytes: int | None) -> ProcessMemory:
    """A PID that a driver names and /proc does not: of another container, hidden, or gone a moment ago."""
    return ProcessMemory(
        identity=ProcessIdentity(pid=pid, start_ticks=0),
        name=f"PID {pid}",
        user="",
        command="",
        memory_bytes=memory_bytes,
        kind=ProcessKind.UNKNOWN,
        protected_because="not visible from here: it runs in another container, is hidden, or has just exited",
    )
