"""System memory by process, for machines without an NVIDIA card: /proc/meminfo and what each process holds.

Anonymous memory is what ending a process gives back; mapped files are cache that the kernel drops when it
likes; shared memory belongs to nobody alone and is a band of its own. Formats: proc_meminfo(5), proc_pid_statm(5).
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.gpu.errors import ProbeError
from app.gpu.process_table import ProcessEntry, ProcessTable
from app.gpu.processes import ProcessReader
from app.gpu.protect import Describer
from app.gpu.record import MemoryKind, MemorySample

DEVICE = "System memory"
_NOTEWORTHY_FRACTION = 0.02
_AT_HAND = re.compile(r"^\s+count:\s+(\d+)$", re.MULTILINE)  # "pagesets" in proc_zoneinfo(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemInfo:
    """What /proc/meminfo says, in bytes, with one correction.

    Attributes:
        available_bytes: what programs can get without swapping, including the pages that each CPU keeps at hand.
            The kernel leaves those out of its own figure though they are free: up to some hundred MiB, so that
            ending a process seems to return nothing.
    """

    total_bytes: int
    available_bytes: int
    anonymous_bytes: int
    shared_bytes: int

    @classmethod
    def parse(cls, meminfo: str, zoneinfo: str = "", *, page_bytes: int = 4096) -> "MemInfo":
        """Read the texts of the two files. Raises KeyError or ValueError where the first is none."""
        rows = (line.partition(":") for line in meminfo.splitlines())
        kib = {name: int(value.split()[0]) for name, _, value in rows if value.strip()}
        return cls(
            total_bytes=kib["MemTotal"] << 10,
            available_bytes=(kib["MemAvailable"] << 10) + page_bytes * sum(map(int, _AT_HAND.findall(zoneinfo))),
            anonymous_bytes=kib["AnonPages"] << 10,
            shared_bytes=kib["Shmem"] << 10,
        )


class SystemMemoryProbe:
    """Looks at the machine's own memory. Costs one small read per process, and a second for those that have changed."""

    def __init__(
        self,
        *,
        reader: ProcessReader | None = None,
        clock: Callable[[], float] = time.monotonic,
        root: Path = Path("/proc"),
    ) -> None:
        self._reader = ProcessReader(root=root) if reader is None else reader
        self._clock = clock
        self._root = root
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._describer = Describer()

    def sample(self) -> MemorySample:
        """The machine now. Raises ProbeError where /proc cannot be read."""
        try:
            table = self._reader.read()
            memory = self._memory()
        except (OSError, KeyError, ValueError) as error:
            raise ProbeError(f"The system does not tell how much memory is free ({error}).") from error
        return sample_of(table, memory, self._describer, time_s=self._clock())

    def _memory(self) -> MemInfo:
        meminfo = (self._root / "meminfo").read_text(encoding="ascii")
        try:
            zoneinfo = (self._root / "zoneinfo").read_text(encoding="ascii")
        except OSError:
            zoneinfo = ""
        return MemInfo.parse(meminfo, zoneinfo, page_bytes=self._page_bytes)

    def close(self) -> None:
        """Nothing is held open."""


def sample_of(table: ProcessTable, memory: MemInfo, describer: Describer, *, time_s: float) -> MemorySample:
    """The stack of one moment: processes + shared + unattributed + free = total, none of them negative."""
    holders = [entry for entry in table if entry.anonymous_bytes > 0]
    shares = counted_once(holders, table, memory.anonymous_bytes)
    held_bytes = sum(shares)
    # The kernel's counters are read one after the other: what is surely held is surely used.
    used_bytes = max(memory.total_bytes - memory.available_bytes, held_bytes + memory.shared_bytes)
    used_bytes = min(used_bytes, memory.total_bytes)
    processes = describer.describe(zip(holders, shares, strict=True), table)
    processes.sort(key=lambda process: process.memory_bytes or 0, reverse=True)
    return MemorySample(
        time_s=time_s,
        memory=MemoryKind.SYSTEM,
        device=DEVICE,
        total_bytes=memory.total_bytes,
        used_bytes=used_bytes,
        free_bytes=memory.total_bytes - used_bytes,
        shared_bytes=memory.shared_bytes,
        unattributed_bytes=used_bytes - held_bytes - memory.shared_bytes,
        processes=tuple(processes),
        note=_note(sum(entry.anonymous_bytes for entry in holders) - held_bytes, memory),
    )


def counted_once(holders: Sequence[ProcessEntry], table: ProcessTable, limit_bytes: int) -> list[int]:
    """What each process holds, such that the sum is at most `limit_bytes`, the anonymous pages there really are.

    A process that was forked without a new program shares its parent's pages until one of them writes, and
    each is charged for all of them. Such families share the excess; where that is not enough, everybody does.
    """
    claims = [entry.anonymous_bytes for entry in holders]
    family = [_is_fork(entry, table) for entry in holders]
    parents = {entry.parent_pid for entry, forked in zip(holders, family, strict=True) if forked}
    family = [forked or entry.pid in parents for entry, forked in zip(holders, family, strict=True)]
    outside_bytes = sum(claim for claim, forked in zip(claims, family, strict=True) if not forked)
    claims = _scaled(claims, family, max(limit_bytes - outside_bytes, 0))
    return _scaled(claims, [True] * len(claims), limit_bytes)


def _is_fork(entry: ProcessEntry, table: ProcessTable) -> bool:
    parent = table.entries.get(entry.parent_pid)
    return parent is not None and bool(entry.command) and parent.command == entry.command


def _scaled(claims: Sequence[int], chosen: Sequence[bool], limit_bytes: int) -> list[int]:
    """`claims`, those of the chosen ones made smaller in proportion so that their sum is at most the limit."""
    wanted = sum(claim for claim, mine in zip(claims, chosen, strict=True) if mine)
    if wanted <= limit_bytes:
        return list(claims)
    return [claim * limit_bytes // wanted if mine else claim for claim, mine in zip(claims, chosen, strict=True)]


def _note(excess_bytes: int, memory: MemInfo) -> str:
    if excess_bytes <= _NOTEWORTHY_FRACTION * memory.total_bytes:
        return ""
    return "Forked processes share memory; it is counted once, divided among them in proportion."
