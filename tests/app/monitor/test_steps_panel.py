import pytest
from pytestqt.qtbot import QtBot

from app.monitor.steps_panel import StepsPanel
from app.theme import Theme
from tests.fakes.clock import FakeClock
from tests.fakes.memory import step


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme, clock: FakeClock) -> StepsPanel:
    panel = StepsPanel(theme, clock)
    panel.resize(500, 200)
    qtbot.addWidget(panel)
    panel.show()
    qtbot.waitExposed(panel)
    return panel


def test_values_and_legend(panel: StepsPanel) -> None:
    panel.on_steps((step(1481, preempted=2), step(1482, prefill=128, decode=7, running=7, waiting=2, preempted=1)))
    panel.refresh()
    assert panel.values.text() == "step 1,482 · 7 running · 2 waiting · 3 preempted"
    texts = [entry.text for entry in panel.legend.entries]
    assert texts == ["prefill 128", "decode 7", "running 7", "waiting 2", "preempted 3"]
    assert panel.legend.hidden == ()


def test_words_come_back_with_another_model(panel: StepsPanel, clock: FakeClock) -> None:
    panel.on_steps((step(1, preempted=5),))
    panel.refresh()
    panel.show_words("Nothing computed yet.")
    panel.refresh()
    assert panel.bars.message == "Nothing computed yet."
    assert not panel.queue.isVisible()
    assert panel.values.text() == ""
    panel.on_steps((step(1),))
    clock.advance(1)
    panel.refresh()
    assert panel.values.text() == "step 1 · 1 running · 0 waiting · 0 preempted"
    assert panel.queue.isVisible()


def test_no_steps_are_no_change(panel: StepsPanel) -> None:
    panel.show_words("Nothing computed yet.")
    panel.on_steps(())
    assert panel.bars.message == "Nothing computed yet."
