"""Weight sources that are closed when a test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.weights.source import WeightSource, open_weights

OpenSource = Callable[[Path], WeightSource]


@pytest.fixture
def open_source() -> Iterator[OpenSource]:
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(closing(open_weights(path)))
