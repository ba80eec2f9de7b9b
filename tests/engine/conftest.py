"""What the engine's tests share."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny tensors on one thread: on busy cores a second one makes them many times slower."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts engine loops in threads of their own, and sees to it that each of them ends."""
    from tests.fakes.loop_thread import LoopThread  # torch, where the test needs it

    started: list[LoopThread] = []

    def start_one(*args: Any, **settings: Any) -> LoopThread:
        started.append(LoopThread(*args, **settings))
        return started[-1]

    yield start_one
    for thread in started:
        thread.stop()
