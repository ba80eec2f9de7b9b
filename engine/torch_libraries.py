"""Loads torch's shared libraries in such a way that the other threads of the process go on meanwhile. No torch.

`import torch` opens them with the interpreter's lock held: a fifth of a second or more in which no other thread of
Python runs, and a window stands still. A foreign function is called without the lock, and dlopen is one; what is open
already is not opened again by the import.
"""

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path

# As torch itself does it: what its libraries share is seen by all, the libraries themselves by whoever asks for them.
_IN_ORDER = (("libtorch_global_deps.so", "RTLD_GLOBAL"), ("libtorch.so", "RTLD_LOCAL"))


def open_torch_libraries() -> tuple[Path, ...]:
    """Open them, and say which were; a failure is left to `import torch`, which explains it. Slow only once."""
    folder = _folder()
    if folder is None:
        return ()
    opened = []
    for name, visibility in _IN_ORDER:
        path = folder / name
        if path.exists() and _dlopen(path, os.RTLD_NOW | getattr(os, visibility)):
            opened.append(path)
    return tuple(opened)


def _folder() -> Path | None:
    """Where they lie; None where torch is imported already, is missing, or is not built like this."""
    if sys.platform != "linux" or "torch" in sys.modules:
        return None
    spec = find_spec("torch")
    return Path(spec.origin).with_name("lib") if spec is not None and spec.origin else None


def _dlopen(path: Path, flags: int) -> bool:
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    return dlopen(os.fsencode(path), flags) is not None
