"""A folder that looks like /proc: as many processes, users and kernel threads as a test wants."""

import os
from collections.abc import Sequence
from pathlib import Path

KERNEL_THREAD = 0x00200000


class FakeProc:
    """Writes the files that the process reader and the system memory probe read."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(
        self,
        pid: int,
        *,
        parent: int = 1,
        start_ticks: int = 100,
        comm: str = "worker",
        state: str = "S",
        uid: int = 1000,
        arguments: Sequence[str] | None = None,
        exe: str | None = None,
        flags: int = 0,
        resident_pages: int = 100,
        file_pages: int = 20,
        cgroup: str = "0::/user.slice/session-1.scope",
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["0"] * 52
        fields[0], fields[1], fields[2] = str(pid), f"({comm})", state
        fields[3], fields[8], fields[21], fields[23] = str(parent), str(flags), str(start_ticks), str(resident_pages)
        (folder / "stat").write_text(" ".join(fields) + "\n")
        (folder / "statm").write_text(f"9000 {resident_pages} {file_pages} 5 0 900 0\n")
        (folder / "status").write_text(f"Name:\t{comm}\nPid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cmdline").write_text("".join(f"{argument}\0" for argument in arguments or [comm]))
        (folder / "cgroup").write_text(cgroup + "\n")
        link = folder / "exe"
        link.unlink(missing_ok=True)
        if exe is not None:
            link.symlink_to(exe)

    def kernel_thread(self, pid: int, *, comm: str = "kworker/0:1") -> None:
        self.process(pid, parent=2, comm=comm, state="I", uid=0, flags=KERNEL_THREAD, resident_pages=0, file_pages=0)
        (self.root / str(pid) / "cmdline").write_text("")

    def gone(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()

    def meminfo(self, *, total_kib: int, available_kib: int, anonymous_kib: int, shared_kib: int) -> None:
        (self.root / "meminfo").write_text(
            f"MemTotal: {total_kib:>15} kB\nMemFree: 5 kB\nMemAvailable: {available_kib} kB\nBuffers: 1 kB\n"
            f"AnonPages: {anonymous_kib} kB\nShmem: {shared_kib} kB\nHugePages_Total:       0\n"
        )


def page_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE")
