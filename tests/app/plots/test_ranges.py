import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plots.ranges import Ceiling, multiples, round_up, tick_text, ticks, whole_step

positive = st.floats(1e-3, 1e9)


@given(value=positive)
def test_round_up_is_near_and_above(value: float) -> None:
    end = round_up(value)
    assert value * (1 - 1e-9) <= end <= 1.5001 * value


def test_round_up_of_nothing() -> None:
    assert round_up(0) == 1


@given(peaks=st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_ceiling_holds_everything_and_does_not_hop(peaks: list[float]) -> None:
    ceiling = Ceiling(smallest=4)
    ends = [ceiling.follow(peak) for peak in peaks]
    for before, peak, end in zip([4.0, *ends], peaks, ends, strict=False):
        assert end >= max(peak, 4)
        if end < before:
            assert end < before / 2


def test_ceiling_never_exceeds_what_can_exist() -> None:
    assert Ceiling(smallest=8).follow(1.0, limit=5) == 5


@given(end=positive, room=st.integers(1, 12))
def test_ticks_are_round_few_and_inside(end: float, room: int) -> None:
    numbers = ticks(end, room)
    assert numbers[0] == 0
    assert 2 <= len(numbers) <= max(3, room + 1)
    assert numbers[-1] <= end * (1 + 1e-6)
    digits = numbers[1] / 10 ** math.floor(math.log10(numbers[1]) + 1e-9)
    assert round(digits, 6) in (1, 2, 5)


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [(800, 912, 50, (800, 850, 900)), (3, 4, 50, ()), (1, 10, 5, (5, 10))],
)
def test_multiples(start: float, end: float, step: float, expected: tuple[float, ...]) -> None:
    assert multiples(start, end, step) == expected


def test_whole_step() -> None:
    assert whole_step(112, 5) == 50
    assert whole_step(1, 5) == 1


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.5, "0.5"), (1500.0, "1,500"), (12.0, "12")])
def test_tick_text(value: float, text: str) -> None:
    assert tick_text(value) == text
