"""NVIDIA's management library: the only module that imports pynvml. Reads; never touches CUDA.

A CUDA call would create a context of some hundred MiB on the card that is only watched.
What the calls mean: nvml.h and the NVML API reference; traps are told where they are met.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from app.gpu.errors import ProbeError
from app.gpu.processes import ProcessReader
from app.gpu.record import MemorySample
from app.gpu.vram import Claim, DeviceMemory, sample_of
from engine.errors import UsageError

_REINITIALISE = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_UNKNOWN)
_LOADED_DRIVER = Path("/proc/driver/nvidia/version")
_T = TypeVar("_T")


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
