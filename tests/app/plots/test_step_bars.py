"""Bars of steps against the steps."""

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.plots.step_bars import BAR_PX, RUNNING_COLOUR, WAITING_COLOUR, QueueStrip, StepBars, StepSeries
from app.theme import DECODE_COLOUR, LIGHT, PREFILL_COLOUR, Theme
from tests.app.plots.pictures import channels_of
from tests.fakes.memory import step


@pytest.fixture
def series() -> StepSeries:
    return StepSeries()


@pytest.fixture
def bars(qtbot: QtBot, theme: Theme, series: StepSeries) -> StepBars:
    bars = StepBars(theme, series)
    bars.resize(442, 122)
    qtbot.addWidget(bars)
    bars.show()
    qtbot.waitExposed(bars)
    return bars


@pytest.fixture
def queue(qtbot: QtBot, theme: Theme, series: StepSeries) -> QueueStrip:
    queue = QueueStrip(theme, series)
    queue.resize(442, 80)
    qtbot.addWidget(queue)
    queue.show()
    qtbot.waitExposed(queue)
    return queue


def redraw(plot: StepBars | QueueStrip) -> np.ndarray:
    plot.mark_dirty()
    plot.refresh()
    image = channels_of(plot)
    return np.array([["" if p[3] == 0 else "#{:02x}{:02x}{:02x}".format(*p[:3]) for p in row] for row in image])


def test_each_step_is_a_bar_of_decode_with_prefill_on_top(bars: StepBars, series: StepSeries) -> None:
    tokens = [(0, 5), (60, 5), (0, 0), (64, 0), (10, 30)]
    for number, (prefill, decode) in enumerate(tokens):
        series.push(step(number + 1, prefill=prefill, decode=decode))
    pixels = redraw(bars)
    scale = len(pixels) / bars.frame.y_range[1]
    for number, (prefill, decode) in enumerate(tokens):
        column = pixels[:, number * BAR_PX]
        assert abs((column == DECODE_COLOUR).sum() - decode * scale) <= 2
        assert abs((column == PREFILL_COLOUR).sum() - prefill * scale) <= 2
        assert (pixels[:, number * BAR_PX + BAR_PX - 1] == "").all()
    assert (pixels[:, len(tokens) * BAR_PX :] == "").all()


def test_one_token_beside_thousands_can_be_seen(bars: StepBars, series: StepSeries) -> None:
    series.push(step(1, prefill=8000, decode=0))
    series.push(step(2, prefill=0, decode=1))
    assert (redraw(bars)[:, BAR_PX] == DECODE_COLOUR).sum() == 2


def test_the_newest_steps_are_shown(bars: StepBars, series: StepSeries) -> None:
    for number in range(1, 1001):
        series.push(step(number))
    redraw(bars)
    shown = bars.shown
    assert shown.shape[1] == bars.area.width() // BAR_PX
    assert shown[0, -1] == 1000


def test_preemptions_are_marked(bars: StepBars, series: StepSeries) -> None:
    series.push(step(1, decode=2))
    series.push(step(2, decode=2, preempted=1))
    pixels = redraw(bars)
    assert LIGHT.text not in pixels[:, 0]
    assert pixels[0, BAR_PX] == LIGHT.text


def test_budget_is_a_level(bars: StepBars, series: StepSeries) -> None:
    bars.set_budget(2048)
    series.push(step(1, decode=7))
    redraw(bars)
    assert [(level.y, level.text) for level in bars.frame.levels] == [(2048, "token budget 2,048")]
    assert bars.frame.y_range[1] < 20  # the axis stays with what is computed


def test_another_engine_starts_anew(series: StepSeries) -> None:
    series.push(step(7))
    series.push(step(8))
    series.push(step(1))
    assert series.last(10)[0].tolist() == [1]


def test_waiting_is_hatched_on_top_of_running(queue: QueueStrip, series: StepSeries) -> None:
    for number in range(1, 40):
        series.push(step(number, running=6, waiting=6))
    pixels = redraw(queue)
    scale = len(pixels) / queue.frame.y_range[1]
    assert (pixels[:, 0] == RUNNING_COLOUR).sum() == round(6 * scale)
    waiting = (pixels == WAITING_COLOUR).sum(axis=1)
    bar_pixels = 39 * (BAR_PX - 1)
    rows = waiting[waiting > 0]
    assert len(rows) == round(6 * scale)
    assert (rows < bar_pixels / 2).all()


def test_step_numbers_stand_below_their_bars(queue: QueueStrip, series: StepSeries) -> None:
    for number in range(801, 913):
        series.push(step(number))
    redraw(queue)
    assert queue.frame.x_labels[0][1] == "step 850"
    for x, text in queue.frame.x_labels:
        assert queue.shown[0, int(x)] == int(text.replace("step ", "").replace(",", ""))


def test_hover_tells_everything_about_a_step(bars: StepBars, series: StepSeries) -> None:
    series.push(step(1482, prefill=128, decode=7, running=7, waiting=2, preempted=1))
    redraw(bars)
    assert bars.hover_text(0.5, 0) == (
        "Step 1,482 · 8 ms\n128 prefill + 7 decode tokens\n7 running · 2 waiting · 1 preempted"
    )
    assert bars.hover_text(1.5, 0) == ""
