"""Chooses the attention back end of a model on a device, and says why the others do not run."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, LayerWindows
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.native_paged import NativePaged
from engine.attention.self_test import agrees_with_reference
from engine.triton_kernels.support import obstacle

if TYPE_CHECKING:
    from engine.native.kernels import Kernels

log = logging.getLogger(__name__)

TRITON_NAME = "paged Triton kernels"
NATIVE_NAME = "paged kernel for CPUs"
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A back end that does not run, and why, as half a sentence."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The back end that runs, and those before it that do not."""

    backend: AttentionBackend
    rejected: tuple[Rejected, ...]


def select_backend(
    architecture: ModelArchitecture, kernels: "Kernels | None", *, dtype: torch.dtype = torch.bfloat16,
    device: torch.device = _CPU, block_size: int = 16,
) -> Selection:  # fmt: skip
    """The quickest back end that is right here: kernels of our own where there are some and they pass their test."""
    windows = LayerWindows(architecture.layer_windows)
    rejected = list(rejections(architecture, dtype, device))
    possible: list[AttentionBackend] = []
    names = {each.name for each in rejected}
    if TRITON_NAME not in names:
        from engine.attention.triton_paged import Card, TritonPaged

        possible.append(TritonPaged(Card.of(device), windows))
    if NATIVE_NAME not in names:
        if kernels is not None:
            possible.append(NativePaged(kernels, windows))
        else:
            rejected.append(Rejected(NATIVE_NAME, "could not be compiled here"))
    for backend in possible:
        reason = _failure(backend, architecture, dtype, device, block_size)
        if not reason:
            return Selection(backend, tuple(rejected))
        log.warning("the %s is not used: it %s", backend.name, reason)
        rejected.append(Rejected(backend.name, reason))
    return Selection(GatherSdpa(windows), tuple(rejected))


def rejections(architecture: ModelArchitecture, dtype: torch.dtype, device: torch.device) -> tuple[Rejected, ...]:
    """Which back ends cannot run here, and why; known before anything is compiled or loaded."""
    found = []
    triton = obstacle(device, head_dim=architecture.head_dim)
    if triton:
        found.append(Rejected(TRITON_NAME, triton))
    if device.type != "cpu" or dtype is not torch.bfloat16:
        found.append(Rejected(NATIVE_NAME, "needs bfloat16 on a CPU"))
    return tuple(found)


def first_choice(architecture: ModelArchitecture, dtype: torch.dtype, device: torch.device) -> str:
    """The name of the back end that will run if it passes its test."""
    rejected = {each.name for each in rejections(architecture, dtype, device)}
    return next((name for name in (TRITON_NAME, NATIVE_NAME) if name not in rejected), GatherSdpa().name)


def _failure(
    backend: AttentionBackend, architecture: ModelArchitecture, dtype: torch.dtype, device: torch.device,
    block_size: int,
) -> str:  # fmt: skip
    with torch.inference_mode():
        try:
            agrees = agrees_with_reference(backend, architecture, dtype, device, block_size=block_size)
        except Exception as error:
            log.exception("the self-test of the %s failed", backend.name)
            return f"failed: {error}".splitlines()[0]
    return "" if agrees else "does not compute what the reference does"
