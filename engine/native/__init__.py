"""Kernels of our own for CPUs, compiled by numba on this machine: one call where torch needs five to ten.

They know pointers, rows and bfloat16; they know neither layers nor sequences.
"""

import logging
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from engine.native.kernels import Kernels

log = logging.getLogger(__name__)


def load_kernels(*, head_dim: int, dtype: torch.dtype, device: torch.device) -> "Kernels | None":
    """Compile the kernels or read them from numba's cache; None where they cannot run, with a line in the log."""
    if device.type != "cpu" or dtype is not torch.bfloat16 or head_dim % 2:
        return None
    try:
        from engine.native.team import Team, torch_openmp
    except ImportError as error:
        log.warning("kernels for the CPU are not used: %s", error)
        return None
    openmp = torch_openmp()
    if openmp is None:
        log.info("kernels for the CPU are not used: torch does not run on GNU OpenMP here")
        return None
    from engine.native.kernels import Kernels

    return Kernels(Team(openmp), head_dim)
