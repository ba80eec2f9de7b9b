"""Which back end a model gets, and that a wrong one is found out before it answers anybody."""

import logging
from typing import Any

import pytest
import torch

from engine.architecture import ModelArchitecture
from engine.attention.backend import LayerWindows
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.native_paged import NativePaged
from engine.attention.select import select_backend
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
    backend = select_backend(architecture(layer_windows=(8, None)), kernels)
    assert backend == GatherSdpa(LayerWindows((8, None)))


def test_bfloat16_on_a_cpu_gets_the_kernel() -> None:
    kernels = load_kernels(head_dim=16, dtype=torch.bfloat16, device=CPU)
    backend = select_backend(architecture(), kernels)
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
        assert isinstance(select_backend(architecture(), Twice()), GatherSdpa)  # type: ignore[arg-type]
    assert "paged kernel for CPUs is not used" in caplog.text
