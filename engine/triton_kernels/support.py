"""Can the kernels run here? Answered without compiling any."""

import os
import platform
import shutil
import sysconfig
from pathlib import Path

import torch

_LEAST_CAPABILITY = (8, 0)  # Triton's own floor since 3.3
_HEAD_DIMS = range(16, 257)
_NO_COMPILER_SINCE = (3, 8)  # before, Triton compiles a launcher in C for each kernel


def obstacle(device: torch.device, *, head_dim: int) -> str:
    """Why the kernels cannot run on a device, as half a sentence; empty where they can."""
    if device.type != "cuda" or torch.version.hip:
        return "needs an NVIDIA card"
    capability = torch.cuda.get_device_capability(device)
    if capability < _LEAST_CAPABILITY:
        return f"needs compute capability 8.0 (Ampere) or newer, and this card has {capability[0]}.{capability[1]}"
    if head_dim not in _HEAD_DIMS or head_dim % 2:
        return f"takes even head sizes from 16 to 256, and this model has {head_dim}"
    return _triton_obstacle()


def _triton_obstacle() -> str:
    try:
        import triton
    except Exception as error:  # noqa: BLE001 - a broken installation fails in many ways
        return f"needs Triton, which cannot be imported: {error}"
    version = str(triton.__version__)
    major_minor = tuple(int(part) for part in version.split(".")[:2])
    missing = _missing_for_c() if major_minor < _NO_COMPILER_SINCE else ""
    return f"needs {missing} for Triton {version} (3.8 and newer do without)" if missing else ""


def _missing_for_c() -> str:
    if platform.system() == "Windows":
        return ""  # Triton's build for Windows brings a compiler
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler (gcc or clang)"
    scheme = sysconfig.get_default_scheme()
    include = sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)
    return "" if (Path(include) / "Python.h").is_file() else "Python's C headers (Python.h)"
