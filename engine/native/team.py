"""Runs a kernel on the threads that torch already has.

A second pool of threads would fight with torch's for the same cores, so a kernel is started by `GOMP_parallel` of the
OpenMP library that torch has loaded (part of libgomp's stable ABI): the same threads that just computed a matrix
product compute the next kernel. Where torch runs on another OpenMP there is no team.
"""

import ctypes
from pathlib import Path
from typing import Any

import llvmlite.binding
import torch
from numba import types

_THREAD_INDEX, _TEAM_SIZE = "omp_get_thread_num", "omp_get_num_threads"

thread_index = types.ExternalFunction(_THREAD_INDEX, types.int32())
"""Inside a kernel: which thread of the team this is; 0 outside of a team."""

team_size = types.ExternalFunction(_TEAM_SIZE, types.int32())
"""Inside a kernel: how many threads run it; 1 outside of a team."""

_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Team:
    """As many of torch's threads as torch uses itself at this moment."""

    def __init__(self, openmp: ctypes.CDLL) -> None:
        self.size = torch.get_num_threads()
        self._parallel = openmp.GOMP_parallel
        self._parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._parallel.restype = None
        self._alone: dict[int, Any] = {}

    def run(self, kernel: int, arguments: "ctypes.Array[ctypes.c_int64]") -> None:
        """Call the kernel at this address on every thread and wait for all."""
        if self.size == 1:
            self.run_alone(kernel, arguments)
        else:
            self._parallel(kernel, arguments, self.size, 0)

    def run_alone(self, kernel: int, arguments: "ctypes.Array[ctypes.c_int64]") -> None:
        """Call the kernel at this address on this thread."""
        if kernel not in self._alone:
            self._alone[kernel] = _Kernel(kernel)
        self._alone[kernel](arguments)


def torch_openmp() -> ctypes.CDLL | None:
    """The OpenMP library that torch has loaded, if it is GNU's; tells the compiler where its functions are."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "GOMP_parallel"):
            for name in (_THREAD_INDEX, _TEAM_SIZE):
                llvmlite.binding.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
            return library
    return None
