"""The one way to look at memory: a probe, and the choice of which probe this machine gets.

Knows no driver: NVML lives in `nvml`, /proc/meminfo in `system_memory`.
"""

from dataclasses import dataclass
from typing import Protocol

from app.gpu.errors import ProbeError
from app.gpu.processes import ProcessReader
from app.gpu.record import MemorySample


class MemoryProbe(Protocol):
    """Looks at one device's memory. Belongs to the thread that opened it."""

    def sample(self) -> MemorySample:
        """The device now.

        Raises:
            ProbeError: the device does not answer. Leave a gap, show the text, ask again later.
        """
        ...

    def close(self) -> None:
        """Let the device go. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedProbe:
    """The probe of this machine and why it is this one.

    Attributes:
        why: a sentence for people.
    """

    probe: MemoryProbe
    why: str


def open_probe(*, device_index: int = 0, reader: ProcessReader | None = None) -> OpenedProbe:
    """NVML where there is an NVIDIA card that answers, otherwise system memory.

    Args:
        device_index: which card, in NVML's order.
        reader: who reads the processes; a new one unless given.

    Raises:
        UsageError: there are cards, but none with this index.
    """
    # The driver's binding takes 50 ms to import and some machines have no use for it.
    from app.gpu.nvml import NvmlProbe
    from app.gpu.system_memory import SystemMemoryProbe

    reader = ProcessReader() if reader is None else reader
    try:
        probe = NvmlProbe(device_index=device_index, reader=reader)
    except ProbeError as error:
        return OpenedProbe(SystemMemoryProbe(reader=reader), _instead(str(error)))
    return OpenedProbe(probe, f"Showing the memory of {probe.device} as its driver (NVML) reports it.")


def _instead(reason: str) -> str:
    return reason if "system memory" in reason else f"{reason} Showing system memory instead."
