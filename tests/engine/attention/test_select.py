"""Which back end a model gets, and that a wrong one is found out before it answers anybody."""

import logging
from typing import Any

import pytest
import torch

from engine.architecture import ModelArchitecture
from engine.attention.backend import LayerWindows
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.native_paged import NativePaged
from engine.attention.select import Rejected, select_backend
from engine.native import load_kernels

CPU = torch.device("cpu")


def architecture(**changes: Any) -> ModelArchitecture:
    shape = {
        "family": "llama", "name": "tiny", "vocab_size": 8, "hidden_size": 64, "intermediate_size": 64, "num_layers": 2,
        "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "max_position_embeddings": 256,
    }  # fmt: skip
    return ModelArchitecture(**(shape | changes))


def test_float32_gets_gather_and_sdpa() -> None:
    kernels = load_kernels(head_dim=16, dtype=torch.float32, device=CPU)
    selection = select_backend(architecture(layer_windows=(8, None)), kernels, dtype=torch.float32)
    assert selection.backend == GatherSdpa(LayerWindows((8, None)))
    assert selection.rejected == (
        Rejected("paged Triton kernels", "needs an NVIDIA card"),
        Rejected("paged kernel for CPUs", "needs bfloat16 on a CPU"),
    )


def test_bfloat16_on_a_cpu_gets_the_kernel() -> None:
    kernels = load_kernels(head_dim=16, dtype=torch.bfloat16, device=CPU)
    backend = select_backend(architecture(), kernels).backend
    assert isinstance(backend, NativePaged)
    assert backend.name == "paged kernel for CPUs"


def test_a_kernel_that_computes_something_else_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    kernels = load_kernels(head_dim=16, dtype=torch.bfloat16, device=CPU)
    assert kernels is not None

    class Twice:
        def attention(self, **arguments: object) -> object:
            attend = kernels.attention(**arguments)  # type: ignore[arg-type]
            return lambda *tensors: attend(*tensors) * 2

    with caplog.at_level(logging.WARNING):
        selection = select_backend(architecture(), Twice())  # type: ignore[arg-type]
    assert isinstance(selection.backend, GatherSdpa)
    assert selection.rejected[-1] == Rejected("paged kernel for CPUs", "does not compute what the reference does")
    assert "paged kernel for CPUs is not used" in caplog.text


def test_without_kernels_the_reason_is_said() -> None:
    selection = select_backend(architecture(), None)
    assert isinstance(selection.backend, GatherSdpa)
    assert selection.rejected[-1] == Rejected("paged kernel for CPUs", "could not be compiled here")


def test_a_kernel_that_raises_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def attention(self, **_arguments: object) -> object:
            raise RuntimeError("no such instruction")

    with caplog.at_level(logging.WARNING):
        selection = select_backend(architecture(), Broken())  # type: ignore[arg-type]
    assert isinstance(selection.backend, GatherSdpa)
    assert selection.rejected[-1] == Rejected("paged kernel for CPUs", "failed: no such instruction")
    assert "paged kernel for CPUs is not used: it failed: no such instruction" in caplog.text
