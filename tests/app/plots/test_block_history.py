"""Blocks over time against a list of all steps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.plots.block_history import BlockHistory, BlockSeries
from app.theme import Theme
from tests.fakes.clock import FakeClock
from tests.fakes.memory import step


@settings(deadline=None)
@given(waits=st.lists(st.sampled_from([0.005, 0.05, 0.4, 3.0]), min_size=1, max_size=80), data=st.data())
def test_thinning_loses_no_peak_and_no_last_value(waits: list[float], data: st.DataObject) -> None:
    series, steps, time_s = BlockSeries(), [], 1000.061  # never on the edge of a column
    for number, wait in enumerate(waits):
        time_s += wait
        steps.append(step(number, time_s, used=data.draw(st.integers(0, 60)), cached=number % 7))
        series.push(steps[-1])
    edges = np.arange(999.0, time_s + 1.0, 0.25)
    used = series.read(edges)[0]
    for column, (left, right) in enumerate(pairwise(edges)):
        inside = [stats.blocks_used for stats in steps if left < stats.time_s <= right]
        before = [stats.blocks_used for stats in steps if stats.time_s <= right]
        if inside:
            assert used[column] == max(inside)
        elif before:
            assert used[column] == before[-1]
        else:
            assert np.isnan(used[column])


def test_two_minutes_of_a_fast_engine_fit() -> None:
    series = BlockSeries()
    for number in range(120 * 300):
        series.push(step(number, 1000 + number / 300, used=50 if number == 400 else 3))
    values = series.read(np.linspace(1000, 1120, 241))
    assert np.isfinite(values[:, 1:]).all()
    assert values[0].max() == 50


@pytest.fixture
def plot(qtbot: QtBot, theme: Theme) -> BlockHistory:
    plot = BlockHistory(theme, FakeClock())
    plot.resize(500, 120)
    qtbot.addWidget(plot)
    plot.show()
    qtbot.waitExposed(plot)
    return plot


def test_the_axis_zooms_to_what_is_used(plot: BlockHistory) -> None:
    plot.push(step(1, 990, used=30, cached=10, total=8000))
    plot.refresh()
    assert 40 <= plot.frame.y_range[1] <= 60
    assert plot.frame.levels[0].text == "8,000 in all"
    plot.push(step(2, 995, used=7000, cached=900, total=8000))
    plot.refresh()
    assert plot.frame.y_range[1] == 8000


def test_hover_counts_the_blocks(plot: BlockHistory) -> None:
    plot.push(step(1, 990, used=30, cached=10, total=100))
    plot.refresh()
    assert plot.hover_text(-5, 0) == "5 s ago\n30 used\n10 cached\n60 empty"
    assert plot.hover_text(-60, 0) == ""


def test_another_model_starts_anew(plot: BlockHistory) -> None:
    plot.push(step(1, 990, used=30))
    plot.begin(480)
    plot.refresh()
    assert np.isnan(plot.values).all()


def test_a_pool_is_told_before_its_first_step(plot: BlockHistory) -> None:
    plot.begin(8192)
    plot.refresh()
    (level,) = plot.frame.levels
    assert (level.y, level.text) == (8192, "8,192 in all")
    assert plot.frame.y_range == (0.0, 8.0)
