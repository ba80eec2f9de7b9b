"""The status line: what it says, with units."""

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.status_line import SpeedMeter, StatusLine
from engine.events import EngineState, EngineStatus, FinishReason, LoadProgress, RequestFinished, StepStats
from tests.fakes.engine import model_info


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_speed_is_tokens_after_the_first_arrival_over_their_time() -> None:
    clock = Clock()
    meter = SpeedMeter(clock)
    assert meter.tokens_per_s() is None
    meter.add(7)
    assert meter.tokens_per_s() is None
    for _ in range(4):
        clock.now_s += 0.25
        meter.add(5)
    assert meter.tokens_per_s() == pytest.approx(20.0)


def test_speed_forgets_what_is_older_than_its_window() -> None:
    clock = Clock()
    meter = SpeedMeter(clock)
    for tokens in (1000, 1000):
        meter.add(tokens)
        clock.now_s += 0.5
    clock.now_s += 2.0
    assert meter.tokens_per_s() is None
    for _ in range(11):
        meter.add(1)
        clock.now_s += 0.1
    assert meter.tokens_per_s() == pytest.approx(10.0)


@pytest.fixture
def line(qtbot: QtBot) -> StatusLine:
    line = StatusLine()
    qtbot.addWidget(line)
    return line


@pytest.fixture
def texts(line: StatusLine) -> Callable[[], list[str]]:
    return lambda: [label.text() for label in line.findChildren(QLabel)]


def finished(**changes: object) -> RequestFinished:
    values: dict[str, object] = {
        "request_id": "a", "reason": FinishReason.EOS, "prompt_tokens": 4, "new_tokens": 11, "cached_tokens": 0,
        "first_step": 1, "finish_step": 11, "ttft_s": 0.14, "decode_s": 0.5,
    }  # fmt: skip
    return RequestFinished(**{**values, **changes})  # type: ignore[arg-type]


def stats(running: int, waiting: int) -> StepStats:
    return StepStats(
        step=1, time_s=0.0, prefill_tokens=0, decode_tokens=1, running=running, waiting=waiting, preempted=0,
        blocks_total=8, blocks_free=7, blocks_used=1, blocks_cached=0, schedule_ms=0.0, forward_ms=1.0, sample_ms=0.0,
    )  # fmt: skip


def test_it_says_what_is_loaded_and_where_it_runs(line: StatusLine, texts: Callable[[], list[str]]) -> None:
    assert "No model" in texts()
    line.on_status(EngineStatus(EngineState.LOADING))
    line.on_load_progress(LoadProgress("Reading weights", 0.25))
    assert "Loading… Reading weights, 25%" in texts()
    line.on_status(EngineStatus(EngineState.READY, model_info()))
    assert "Fake-135M · bfloat16" in texts()
    assert "CPU, 2 threads" in texts()
    line.on_status(EngineStatus(EngineState.FAILED, message="broken"))
    assert "No model: failed" in texts()
    assert "CPU, 2 threads" not in texts()


def test_what_is_not_known_takes_no_room(line: StatusLine, texts: Callable[[], list[str]]) -> None:
    line.on_first_token("a", 0.172)
    line.on_finished(finished())
    line.on_status(EngineStatus(EngineState.EMPTY))
    assert [label.text() for label in line.findChildren(QLabel) if not label.isHidden()] == ["No model"]
    line.on_status(EngineStatus(EngineState.READY, model_info()))
    shown = [label.text() for label in line.findChildren(QLabel) if not label.isHidden()]
    assert shown == ["Fake-135M · bfloat16", "CPU, 2 threads", "0 running", "0 waiting"]


def test_an_answer_leaves_its_first_token_and_its_speed(line: StatusLine, texts: Callable[[], list[str]]) -> None:
    line.on_first_token("a", 0.172)
    assert "first token 0.17 s" in texts()
    line.on_finished(finished())
    assert "first token 0.14 s" in texts()
    assert "20.0 tok/s" in texts()


def test_the_speed_of_one_of_many_is_not_taken_for_the_speed_of_all(
    line: StatusLine, texts: Callable[[], list[str]]
) -> None:
    line.on_steps((stats(3, 0),))
    line.on_finished(finished())
    assert not any("tok/s" in text for text in texts())


def test_running_and_waiting_follow_the_last_step_and_end_with_it(
    line: StatusLine, texts: Callable[[], list[str]]
) -> None:
    line.on_steps((stats(1, 5), stats(2, 3)))
    assert "2 running" in texts()
    assert "3 waiting" in texts()
    line.on_idle()  # after a cancel no step follows
    assert "0 running" in texts()
    assert "0 waiting" in texts()


def test_every_figure_explains_itself(line: StatusLine) -> None:
    labels = [label for label in line.findChildren(QLabel) if label.objectName() == "secondary"]
    assert len(labels) == 5
    assert all(label.toolTip() for label in labels)
