"""Chooses the attention back end of a model on a device."""

import logging
from typing import TYPE_CHECKING

import torch

from engine.architecture import ModelArchitecture
from engine.attention.backend import AttentionBackend, LayerWindows
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.native_paged import NativePaged
from engine.attention.self_test import agrees_with_reference

if TYPE_CHECKING:
    from engine.native.kernels import Kernels

log = logging.getLogger(__name__)


def select_backend(architecture: ModelArchitecture, kernels: "Kernels | None") -> AttentionBackend:
    """The quickest back end that is right here: kernels of our own where there are some and they pass their test."""
    windows = LayerWindows(architecture.layer_windows)
    portable = GatherSdpa(windows)
    if kernels is None:
        return portable
    native = NativePaged(kernels, windows)
    with torch.inference_mode():
        if agrees_with_reference(native, architecture, torch.bfloat16, torch.device("cpu")):
            return native
    log.warning("the %s is not used: it does not compute what the reference does", native.name)
    return portable
