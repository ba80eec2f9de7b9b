"""What the engine's tests share."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny tensors on one thread: on busy cores a second one makes them many times slower."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
