"""NVIDIA's management library: the only module that imports pynvml. Reads; never touches CUDA.

A CUDA call would create a context of some hundred MiB on the card that is only watched.
What the calls mean: nvml.h and the NVML API reference; traps are told where they are met.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from app.gpu.errors import ProbeError
from app.gpu.processes import ProcessReader, ProcessTable
from app.gpu.protect import described, not_visible
from app.gpu.record import MemoryKind, MemorySample, ProcessMemory
from engine.errors import UsageError

_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT, include/linux/threads.h
_SMALLEST_CLAIM_BYTES = 4096
_NOTEWORTHY_BYTES = 512 << 20
_GIB = 1 << 30
_REINITIALISE = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_UNKNOWN)
_LOADED_DRIVER = Path("/proc/driver/nvidia/version")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The card's own account. `reserved_bytes` is None where an old driver hides it inside `used_bytes`."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the driver's lists: a PID and its bytes, None where the driver does not tell."""

    pid: int
    memory_bytes: int | None


class NvmlProbe:
    """Watches one card. The card is held by its UUID, since indices may change when the driver starts anew."""

    def __init__(
        self, *, device_index: int = 0, reader: ProcessReader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Open the driver's library and the card.

        Raises:
            ProbeError: no library, no driver, no card, or a card whose memory the driver does not tell.
            UsageError: there are cards, but none with this index.
        """
        self._index = device_index
        self._reader = reader
        self._clock = clock
        self._uuid: str | None = None
        self._open = False
        _check_binding()
        try:
            self._handle = self._asked(self._acquire)
            self.device = str(self._asked(lambda: pynvml.nvmlDeviceGetName(self._handle)))
            self._asked(self._memory)
        except BaseException:
            self.close()
            raise

    def sample(self) -> MemorySample:
        """The card now. Raises ProbeError where it does not answer."""
        memory, claims = self._asked(lambda: (self._memory(), self._claims()))
        return sample_of(self.device, memory, claims, self._reader.read(), time_s=self._clock())

    def close(self) -> None:
        """Let the library go, so that a laptop's card may sleep."""
        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _asked(self, question: Callable[[], _T]) -> _T:
        """Ask the driver; where it lost us (a resume, an update), start anew once and ask again."""
        try:
            return self._translated(question)
        except _LostError:
            self.close()
        try:
            return self._translated(lambda: self._again(question))
        except _LostError as error:
            raise ProbeError(str(error)) from error

    def _again(self, question: Callable[[], _T]) -> _T:
        self._handle = self._acquire()
        return question()

    def _translated(self, question: Callable[[], _T]) -> _T:
        try:
            if not self._open:
                self._start()
            return question()
        except pynvml.NVMLError as error:
            text = sentence_for(error.value, self._index)
            raise (_LostError if error.value in _REINITIALISE else ProbeError)(text) from error
        except pynvml.NVMLLibraryMismatchError as error:
            raise ProbeError(f"The driver's library does not fit its Python binding ({error}).") from error

    def _start(self) -> None:
        pynvml.nvmlInit()
        self._open = True

    def _acquire(self) -> Any:
        if self._uuid is not None:
            return pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
        count = int(pynvml.nvmlDeviceGetCount())
        if count == 0:
            raise ProbeError("The NVIDIA driver is there, but it sees no GPU.")
        if not 0 <= self._index < count:
            raise UsageError(f"There is no GPU {self._index}; this machine has {count}, numbered from 0.")
        handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        self._uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        return handle

    def _memory(self) -> DeviceMemory:
        # The first version counts the driver's reserve as used, which looks like a process that nobody runs.
        try:
            v2 = pynvml.nvmlDeviceGetMemoryInfo(self._handle, version=pynvml.nvmlMemory_v2)
        except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_ArgumentVersionMismatch):
            v1 = pynvml.nvmlDeviceGetMemoryInfo(self._handle)
            memory = DeviceMemory(int(v1.total), int(v1.used), int(v1.free), None)
        else:
            memory = DeviceMemory(int(v2.total), int(v2.used), int(v2.free), int(v2.reserved))
        if memory.total_bytes == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return memory

    def _claims(self) -> list[Claim]:
        rows = [
            *pynvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle),
            *pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(self._handle),
        ]
        return [Claim(int(row.pid), None if row.usedGpuMemory is None else int(row.usedGpuMemory)) for row in rows]


class _LostError(ProbeError):
    """The driver forgot us; starting anew may help."""


def _check_binding() -> None:
    # nvidia-ml-py3 installs a module of the same name, of 2017, over the maintained one.
    if not hasattr(pynvml, "nvmlMemory_v2") or not hasattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
        raise ProbeError(
            "An outdated NVML binding hides the one that is needed: run "
            "`pip uninstall nvidia-ml-py3 pynvml` and `pip install --force-reinstall nvidia-ml-py`."
        )


def sample_of(
    device: str, memory: DeviceMemory, claims: Iterable[Claim], table: ProcessTable, *, time_s: float
) -> MemorySample:
    """One look at the card, its processes joined and checked. The residual may be negative and is left so."""
    claims = list(claims)
    joined = {} if is_garbled(claims) else joined_by_pid(claims, memory.total_bytes)
    processes = _rows(joined, table)
    known_bytes = sum(claim for claim in joined.values() if claim is not None)
    unattributed_bytes = memory.used_bytes - known_bytes
    return MemorySample(
        time_s=time_s,
        memory=MemoryKind.VRAM,
        device=device,
        total_bytes=memory.total_bytes,
        used_bytes=memory.used_bytes,
        free_bytes=memory.free_bytes,
        reserved_bytes=memory.reserved_bytes or 0,
        unattributed_bytes=unattributed_bytes,
        processes=tuple(processes),
        note=" ".join(_notes(memory, claims, joined, unattributed_bytes)),
    )


def is_garbled(claims: Sequence[Claim]) -> bool:
    """Whether the rows look like another version's structure, with the PID in the place of the bytes."""
    return any(
        claim.pid > _LARGEST_PID and claim.memory_bytes is not None and claim.memory_bytes < _SMALLEST_CLAIM_BYTES
        for claim in claims
    )


def joined_by_pid(claims: Iterable[Claim], total_bytes: int) -> dict[int, int | None]:
    """One row per process.

    The driver counts all memory of a PID whichever list it appears in, so a process that computes and draws
    carries the same number twice: the larger one is taken, never the sum. More than the card holds is not known.
    """
    joined: dict[int, int | None] = {}
    for claim in claims:
        if claim.pid == 0:
            continue
        believed = claim.memory_bytes if (claim.memory_bytes or 0) <= total_bytes else None
        before = joined.get(claim.pid)
        joined[claim.pid] = before if believed is None else max(believed, before or 0)
    return joined


def _rows(joined: Mapping[int, int | None], table: ProcessTable) -> list[ProcessMemory]:
    rows = [
        not_visible(pid, claim) if pid not in table.entries else described(table.entries[pid], table, claim)
        for pid, claim in joined.items()
    ]
    return sorted(rows, key=lambda row: -1 if row.memory_bytes is None else row.memory_bytes, reverse=True)


def _notes(
    memory: DeviceMemory, claims: Sequence[Claim], joined: Mapping[int, int | None], unattributed_bytes: int
) -> Iterable[str]:
    if memory.reserved_bytes is None:
        yield "This driver counts its own reserve as used."
    if is_garbled(claims):
        yield "The driver's list of processes is garbled (driver and binding do not fit) and was left out."
    elif joined and all(claim is None for claim in joined.values()):
        yield "This display driver does not tell who holds what."
    elif unattributed_bytes < 0:
        yield "Processes share buffers; adding them up gives more than the card holds in use."
    elif unattributed_bytes > _NOTEWORTHY_BYTES:
        yield (
            f"{unattributed_bytes / _GIB:.1f} GiB are held by something this list cannot name: managed memory, "
            "a process of another container or user, or one that died while a child still holds the device."
        )


def sentence_for(code: int, device_index: int) -> str:
    """What a return code of NVML's means to somebody who sits in front of the machine."""
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return _driver_updated()
    if code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
        return f"GPU {device_index} stopped answering at {time.strftime('%H:%M:%S')}; a restart may bring it back."
    named = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "No NVIDIA driver library on this machine.",
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "The NVIDIA driver library is there, its kernel module is not loaded.",
        pynvml.NVML_ERROR_NO_PERMISSION: f"This user (or container) may not see GPU {device_index}.",
        pynvml.NVML_ERROR_OPERATING_SYSTEM: f"This user (or container) may not see GPU {device_index}.",
        pynvml.NVML_ERROR_NOT_SUPPORTED: (
            f"GPU {device_index} shares memory with the system, so its numbers come from the operating system."
        ),
    }
    return named.get(
        code, f"The NVIDIA driver answers with an error for GPU {device_index} ({pynvml.NVMLError(code)})."
    )


def _driver_updated() -> str:
    loaded = _loaded_driver_version()
    was = f" from {loaded}" if loaded else ""
    return f"The NVIDIA driver was updated{was} while running. GPU numbers come back after a restart of the computer."


def _loaded_driver_version() -> str:
    """The version of the kernel module, readable without NVML; empty where it is not told."""
    try:
        found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", _LOADED_DRIVER.read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""
