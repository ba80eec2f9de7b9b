"""The dashboard as a whole: what it draws, when it draws, and what it asks for."""

import subprocess
import sys

import pytest
from PySide6.QtWidgets import QAbstractButton, QWidget
from pytestqt.qtbot import QtBot

from app.gpu.record import ProcessKind, StopOutcome
from app.monitor.panel import STALE_AFTER_S, Dashboard, ShortNames
from app.monitor.release_dialog import Stage
from app.theme import Theme
from engine.events import BlockMap, BlockOwner, EngineState, EngineStatus
from tests.fakes.clock import FakeClock
from tests.fakes.memory import GIB, model_info, process, sample, step
from tests.fakes.release import report

LLAMA = process("llama-server", 42, 5 * GIB, ProcessKind.MODEL_SERVER)
READY = EngineStatus(EngineState.READY, model_info())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dashboard(qtbot: QtBot, theme: Theme, clock: FakeClock) -> Dashboard:
    dashboard = Dashboard(theme, clock=clock)
    dashboard.resize(520, 780)
    qtbot.addWidget(dashboard)
    dashboard.show()
    qtbot.waitExposed(dashboard)
    qtbot.waitUntil(lambda: not dashboard.is_drawing)
    return dashboard


def feed(dashboard: Dashboard, clock: FakeClock, number: int = 1) -> None:
    dashboard.on_sample(sample(clock(), [LLAMA]))
    dashboard.on_steps((step(number, clock()),))
    dashboard.on_block_map(BlockMap(100, 16, (BlockOwner("r1", (1, 2), 20),), ()))


def test_all_three_graphs_are_visible_in_a_column_of_520(dashboard: Dashboard, clock: FakeClock) -> None:
    dashboard.on_status(READY)
    feed(dashboard, clock)
    for height in (780, 700):
        dashboard.resize(520, height)
        plots: list[QWidget] = [
            dashboard.memory.plot,
            dashboard.blocks.history,
            dashboard.blocks.map,
            dashboard.steps.bars,
            dashboard.steps.queue,
        ]
        for plot in plots:
            assert plot.isVisible()
            assert plot.height() >= 40
            corner = plot.mapTo(dashboard, plot.rect().bottomRight())
            assert dashboard.rect().contains(corner)


def test_every_state_of_the_engine_has_its_words(dashboard: Dashboard) -> None:
    seen = set()
    for state in (EngineState.EMPTY, EngineState.LOADING, EngineState.FAILED):
        dashboard.on_status(EngineStatus(state))
        seen |= {dashboard.blocks.map.message, dashboard.steps.bars.message}
    assert len(seen) == 6
    dashboard.on_status(READY)
    assert dashboard.blocks.map.message == ""
    assert dashboard.steps.bars.message.startswith("Nothing computed yet")


def test_values_are_drawn_by_one_clock_that_stops(qtbot: QtBot, dashboard: Dashboard, clock: FakeClock) -> None:
    dashboard.on_status(READY)
    feed(dashboard, clock)
    assert dashboard.is_drawing
    qtbot.waitUntil(lambda: dashboard.memory.values.text() != "" and dashboard.steps.values.text() != "")
    qtbot.waitUntil(lambda: dashboard.blocks.values.text().startswith("2 of 100"))
    qtbot.waitUntil(lambda: not dashboard.is_drawing)


def test_many_values_between_two_frames_cost_one_painting(qtbot: QtBot, dashboard: Dashboard, clock: FakeClock) -> None:
    dashboard.on_status(READY)
    feed(dashboard, clock)
    qtbot.waitUntil(lambda: not dashboard.is_drawing)
    before = dashboard.repaints
    for number in range(2, 100):
        feed(dashboard, clock, number)
    clock.advance(1)
    qtbot.waitUntil(lambda: not dashboard.is_drawing)
    after = dashboard.repaints
    assert all(after[name] - before[name] <= 2 for name in after)
    assert any(after[name] > before[name] for name in after)


def test_nothing_is_drawn_while_hidden_and_all_is_there_when_shown(
    qtbot: QtBot, dashboard: Dashboard, clock: FakeClock
) -> None:
    dashboard.on_status(READY)
    qtbot.waitUntil(lambda: not dashboard.is_drawing)
    dashboard.hide()
    before = dashboard.repaints
    feed(dashboard, clock)
    assert not dashboard.is_drawing
    assert dashboard.repaints == before
    dashboard.show()
    clock.advance(1)
    qtbot.waitUntil(lambda: dashboard.memory.values.text() != "" and dashboard.steps.values.text() != "")


def test_old_samples_are_grey_with_their_age(qtbot: QtBot, dashboard: Dashboard, clock: FakeClock) -> None:
    feed(dashboard, clock)
    dashboard.on_sampler_trouble("GPU 0 stopped answering.")
    clock.advance(STALE_AFTER_S + 4)
    dashboard.check_age()
    assert dashboard.memory.plot.stale == "No sample for 8 s. GPU 0 stopped answering."
    feed(dashboard, clock)
    assert dashboard.memory.plot.stale == ""


def test_the_end_of_a_release_is_written_into_the_graph_once(
    qtbot: QtBot, dashboard: Dashboard, clock: FakeClock
) -> None:
    feed(dashboard, clock)
    end = report([(LLAMA, StopOutcome.EXITED)], finished=True, returned_bytes=5 * GIB)
    dashboard.on_release(report([(LLAMA, StopOutcome.WAITING)], finished=False))
    dashboard.on_release(end)
    dashboard.on_release(end)
    qtbot.waitUntil(lambda: not dashboard.is_drawing)
    assert [mark.text for mark in dashboard.memory.plot.frame.marks] == ["llama-server stopped, 5.00 of 5.00 GiB back"]


def test_wishes_of_the_dialog_leave_by_the_dashboard(qtbot: QtBot, dashboard: Dashboard, clock: FakeClock) -> None:
    feed(dashboard, clock)
    dashboard.memory.free_button.click()
    dialog = dashboard.dialog
    assert dialog.isVisible()
    dialog.choose.offered.model_of_processes.toggle(0)
    dialog.choose.ask_button.click()
    with qtbot.waitSignal(dashboard.release_requested) as asked:
        dialog.consent.agree_button.click()
    assert asked.args == [(LLAMA.identity,)]
    dashboard.on_release(report([(LLAMA, StopOutcome.STILL_RUNNING)], finished=True))
    dialog.progress.force_button.click()
    with qtbot.waitSignal(dashboard.kill_requested) as forced:
        dialog.consent.agree_button.click()
    assert forced.args == [(LLAMA.identity,)]
    dashboard.on_sampler_failed("The sampler broke.")
    assert dialog.stage is Stage.DONE
    with qtbot.waitSignal(dashboard.restart_requested):
        dashboard.memory.again_button.click()


def test_a_sequence_has_one_colour_and_one_name(dashboard: Dashboard, clock: FakeClock) -> None:
    dashboard.on_status(READY)
    feed(dashboard, clock)
    colour = dashboard.sequence_colours.colour("r1")
    dashboard.on_block_map(BlockMap(100, 16, (BlockOwner("r0", (5,), 9), BlockOwner("r1", (1, 2), 20)), ()))
    assert dashboard.sequence_colours.colour("r1") == colour
    names = ShortNames()
    assert [names("x"), names("y"), names("x")] == ["#1", "#2", "#1"]


def test_every_button_says_what_it_does(dashboard: Dashboard) -> None:
    for button in dashboard.findChildren(QAbstractButton):
        if button.text():
            assert button.accessibleName()
            assert button.toolTip()


def test_the_sampler_needs_no_pyqtgraph() -> None:
    code = "import sys, app.monitor.sampler_thread; print('pyqtgraph' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
