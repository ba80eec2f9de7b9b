"""What the tests of this package share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.household import Household
from tests.fakes.proc import FakeProc


@pytest.fixture
def household() -> Iterator[Household]:
    """Real processes; everything that is started here is ended and collected here."""
    house = Household()
    yield house
    house.close()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    root = tmp_path / "proc"
    root.mkdir()
    return FakeProc(root)
