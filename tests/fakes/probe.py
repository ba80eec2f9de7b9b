"""A memory probe that answers from the hand of the test."""

from app.gpu.errors import ProbeError
from app.gpu.record import MemoryKind, MemorySample, ProcessIdentity, ProcessKind, ProcessMemory

GIB = 1 << 30


class FakeProbe:
    """Set `free_bytes` and `processes`; set `broken` to let it raise."""

    def __init__(self, *, total_bytes: int = 16 * GIB, free_bytes: int = 4 * GIB) -> None:
        self.total_bytes = total_bytes
        self.free_bytes = free_bytes
        self.processes: tuple[ProcessMemory, ...] = ()
        self.broken = False
        self.closed = False
        self.looks = 0

    def sample(self) -> MemorySample:
        self.looks += 1
        if self.broken:
            raise ProbeError("GPU 0 stopped answering.")
        return MemorySample(
            time_s=0.0,
            memory=MemoryKind.VRAM,
            device="Fake card",
            total_bytes=self.total_bytes,
            used_bytes=self.total_bytes - self.free_bytes,
            free_bytes=self.free_bytes,
            processes=self.processes,
        )

    def close(self) -> None:
        self.closed = True


def process_memory(
    *, pid: int, start_ticks: int = 1, memory_bytes: int | None = GIB, name: str = "holder", protected_because: str = ""
) -> ProcessMemory:
    """A row of a sample."""
    return ProcessMemory(
        identity=ProcessIdentity(pid=pid, start_ticks=start_ticks),
        name=name,
        user="me",
        command=name,
        memory_bytes=memory_bytes,
        kind=ProcessKind.APPLICATION,
        protected_because=protected_because,
    )
