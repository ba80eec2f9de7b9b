"""Where the Triton kernels can run, and the sentence where they cannot."""

import shutil
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine.triton_kernels.support import obstacle

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.6.0"))


@pytest.fixture(autouse=True)
def _a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "clang" else None)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda *_names: str(tmp_path))


def test_ampere_with_a_compiler() -> None:
    assert obstacle(CUDA, head_dim=128) == ""


def test_no_card() -> None:
    assert obstacle(torch.device("cpu"), head_dim=128) == "needs an NVIDIA card"


def test_turing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    assert "and this card has 7.5" in obstacle(CUDA, head_dim=128)


@pytest.mark.parametrize("head_dim", [8, 25, 512])
def test_head_sizes(head_dim: int) -> None:
    assert f"this model has {head_dim}" in obstacle(CUDA, head_dim=head_dim)


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    assert obstacle(CUDA, head_dim=64).startswith("needs Triton, which cannot be imported")


@pytest.mark.parametrize(("version", "is_needed"), [("3.6.0", True), ("3.7.1+git", True), ("3.8.0", False)])
def test_an_old_triton_needs_a_compiler(monkeypatch: pytest.MonkeyPatch, version: str, is_needed: bool) -> None:
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    expected = f"needs a C compiler (gcc or clang) for Triton {version} (3.8 and newer do without)"
    assert obstacle(CUDA, head_dim=64) == (expected if is_needed else "")
    monkeypatch.setenv("CC", "tcc")
    assert obstacle(CUDA, head_dim=64) == "", "CC names one"


def test_headers_are_needed_too(tmp_path: Path) -> None:
    (tmp_path / "Python.h").unlink()
    assert obstacle(CUDA, head_dim=64).startswith("needs Python's C headers (Python.h) for Triton 3.6.0")
