"""Rings and stacks against plain lists that keep everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.plots.series import Ring, StackedSeries, hold, interpolate

times = st.lists(st.floats(0.01, 3.0), min_size=1, max_size=60).map(np.cumsum)


@given(capacity=st.integers(1, 9), values=st.lists(st.floats(-1e6, 1e6), max_size=40), count=st.integers(0, 50))
def test_ring_shows_the_newest_columns_in_one_piece(capacity: int, values: list[float], count: int) -> None:
    ring = Ring(2, capacity)
    kept: list[tuple[float, float]] = []
    for index, value in enumerate(values):
        ring.append((index, value))
        kept = [*kept, (float(index), value)][-capacity:]
        if index % 3 == 0:  # a correction of the one before, which may have left already
            age = min(2, len(kept))
            ring.replace(age, (kept[-age][0], -value))
            kept[-age] = (kept[-age][0], -value)
    view = ring.last(count)
    assert [tuple(column) for column in view.T] == (kept[-count:] if count else [])
    assert len(ring) == len(kept)
    assert all(row.flags.c_contiguous for row in view)


def test_ring_since_a_time() -> None:
    ring = Ring(2, 4)
    for time_s in range(7):
        ring.append((time_s, time_s * 10))
    assert ring.since(4.5).tolist() == [[5, 6], [50, 60]]
    assert ring.since(99).shape == (2, 0)
    ring.clear()
    assert ring.since(0).shape == (2, 0)


samples = st.lists(st.dictionaries(st.integers(0, 40), st.integers(0, 1000), max_size=8), min_size=1, max_size=30)


@given(rows=samples, capacity=st.integers(1, 12))
def test_stack_remembers_what_each_holder_had(rows: list[dict[int, int]], capacity: int) -> None:
    stack: StackedSeries[int] = StackedSeries(capacity)
    for time_s, values in enumerate(rows):
        stack.push(time_s, values)
    kept = rows[-capacity:]
    for key in {key for row in kept for key, value in row.items() if value}:
        _, (values,) = stack.window(0, [key])
        assert values.tolist() == [row.get(key, 0) for row in kept]
    assert stack.total(0).tolist() == [sum(row.values()) for row in kept]


def test_rows_of_processes_that_left_are_used_again() -> None:
    stack: StackedSeries[int] = StackedSeries(4)
    for time_s in range(5000):
        stack.push(time_s, {time_s: 1.0, -1: 0.0})
    assert len(stack.keys) <= 20
    assert stack.window(0, [-1])[1].tolist() == [[0, 0, 0, 0]]


@given(peaks=st.lists(st.integers(1, 10**6), min_size=1, max_size=12, unique=True), count=st.integers(1, 6))
def test_leaders_have_the_highest_peaks(peaks: list[int], count: int) -> None:
    stack: StackedSeries[int] = StackedSeries(8)
    stack.push(0, dict(enumerate(peaks)))
    stack.push(1, {})  # all gone: what counts is the peak within the window
    best = sorted(range(len(peaks)), key=lambda key: -peaks[key])[:count]
    assert list(stack.leaders(0, count)) == best


def test_a_leader_is_not_pushed_out_by_a_little_more() -> None:
    stack: StackedSeries[str] = StackedSeries(8)
    stack.push(0, {"first": 100, "second": 90})
    assert stack.leaders(0, 1) == ("first",)
    stack.push(1, {"first": 100, "second": 115})
    assert stack.leaders(0, 1) == ("first",)
    stack.push(2, {"first": 100, "second": 130})
    assert stack.leaders(0, 1) == ("second",)
    assert stack.leaders(0, 1, without=["second"]) == ("first",)


def test_leaders_keep_their_order() -> None:
    stack: StackedSeries[str] = StackedSeries(8)
    stack.push(0, {"a": 50, "b": 40})
    assert stack.leaders(0, 3) == ("a", "b")
    stack.push(1, {"a": 50, "b": 500, "c": 900})
    assert stack.leaders(0, 3) == ("a", "b", "c")


def interpolated(times: list[float], values: list[float], at: float, gap_s: float) -> float:
    """One point, slowly."""
    for moment, value in zip(times, values, strict=True):
        if moment == at:
            return value
    for index in range(len(times) - 1):
        if times[index] < at < times[index + 1] and times[index + 1] - times[index] <= gap_s:
            share = (at - times[index]) / (times[index + 1] - times[index])
            return values[index] + share * (values[index + 1] - values[index])
    return float("nan")


@given(moments=times, data=st.data())
def test_interpolation_leaves_gaps(moments: np.ndarray, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(0, 100), min_size=len(moments), max_size=len(moments)))
    at = data.draw(st.lists(st.floats(-5, 200) | st.sampled_from(list(moments)), max_size=20))
    result = interpolate(moments, np.array([values]), np.array(at), gap_s=1.5)[0]
    expected = [interpolated(list(moments), values, moment, 1.5) for moment in at]
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)


def test_interpolation_of_nothing_is_a_gap() -> None:
    assert np.isnan(interpolate(np.zeros(0), np.zeros((2, 0)), np.array([1.0]), gap_s=1)).all()


def held(times: list[float], rows: list[tuple[int, int]], left: float, right: float) -> tuple[float, float]:
    """One column, slowly."""
    inside = [row for moment, row in zip(times, rows, strict=True) if left < moment <= right]
    if inside:
        return max(inside)
    before = [row for moment, row in zip(times, rows, strict=True) if moment <= right]
    return before[-1] if before else (float("nan"), float("nan"))


@settings(max_examples=200)
@given(moments=times, data=st.data())
def test_hold_keeps_peaks_and_lasts_until_the_next(moments: np.ndarray, data: st.DataObject) -> None:
    pairs = st.tuples(st.integers(0, 9), st.integers(0, 9))
    rows = data.draw(st.lists(pairs, min_size=len(moments), max_size=len(moments)))
    edges = np.linspace(-3, 40, 12)
    result = hold(moments, np.array(rows, dtype=float).T, edges)
    for column in range(11):
        expected = held(list(moments), rows, edges[column], edges[column + 1])
        got = result[:, column]
        if np.isnan(expected[0]):
            assert np.isnan(got).all()
        else:
            assert got[0] == expected[0]
            assert tuple(got) in rows


def test_hold_of_nothing() -> None:
    assert np.isnan(hold(np.zeros(0), np.zeros((1, 0)), np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("rows", [16, 17, 40])
def test_many_holders_at_once(rows: int) -> None:
    stack: StackedSeries[int] = StackedSeries(3)
    stack.push(0, {key: key + 1.0 for key in range(rows)})
    _, values = stack.window(0, range(rows))
    assert values[:, 0].tolist() == [key + 1.0 for key in range(rows)]
