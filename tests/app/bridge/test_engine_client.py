"""The client with a real thread and a scripted engine."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app.bridge.engine_client import EngineClient
from engine.config import EngineConfig
from engine.errors import ModelError, RequestError
from engine.events import EngineState, EngineStatus, FinishReason
from engine.requests import Request, SamplingParams
from tests.fakes.engine import ANSWER, Script


class Recorder:
    """Everything a client said, in order, as (signal, value)."""

    def __init__(self, client: EngineClient) -> None:
        self.events: list[tuple[str, Any]] = []
        self.threads: set[int] = set()
        client.text_arrived.connect(self._on_text)
        client.request_finished.connect(self._on_finished)
        client.request_failed.connect(self._on_failed)
        client.status_changed.connect(self._on_status)
        client.steps_arrived.connect(self._on_steps)
        client.load_progressed.connect(self._on_progress)
        client.block_map_arrived.connect(self._on_map)

    def _add(self, name: str, value: Any) -> None:
        self.threads.add(threading.get_ident())
        self.events.append((name, value))

    def _on_text(self, request_id: str, text: str, token_ids: tuple[int, ...]) -> None:
        self._add("text", (request_id, text, token_ids))

    def _on_finished(self, value: object) -> None:
        self._add("finished", value)

    def _on_failed(self, value: object) -> None:
        self._add("failed", value)

    def _on_status(self, value: object) -> None:
        self._add("status", value)

    def _on_steps(self, value: object) -> None:
        self._add("steps", value)

    def _on_progress(self, value: object) -> None:
        self._add("progress", value)

    def _on_map(self, value: object) -> None:
        self._add("map", value)

    def of(self, name: str) -> list[Any]:
        return [value for kind, value in self.events if kind == name]

    def text(self, request_id: str) -> str:
        return "".join(text for name, text, _ in self.of("text") if name == request_id)

    def ends(self) -> dict[str, list[str]]:
        """Request id to how it ended, every time."""
        ends: dict[str, list[str]] = {}
        for kind, value in self.events:
            if kind in {"finished", "failed"}:
                ends.setdefault(value.request_id, []).append(kind)
        return ends

    def states(self) -> list[EngineState]:
        return [status.state for status in self.of("status")]


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def client(qtbot: QtBot, script: Script) -> Iterator[EngineClient]:
    client = EngineClient(load_engine=script.factory)
    yield client
    script.step_error = script.cancel_error = None
    client.stop()
    qtbot.waitUntil(lambda: not client.is_running)
    assert all(engine.is_closed for engine in script.engines)


@pytest.fixture
def seen(client: EngineClient) -> Recorder:
    return Recorder(client)


def ask(request_id: str, max_tokens: int | None = None) -> Request:
    return Request(request_id=request_id, text="hello there", sampling=SamplingParams(max_tokens=max_tokens))


def load(qtbot: QtBot, client: EngineClient) -> None:
    client.load_model(EngineConfig(model="fake"))
    qtbot.waitUntil(lambda: client.status.state is EngineState.READY)


def test_text_comes_before_the_end_and_in_the_gui_thread(qtbot: QtBot, client: EngineClient, seen: Recorder) -> None:
    load(qtbot, client)
    client.submit(ask("a"))
    with qtbot.waitSignal(client.request_finished):
        pass
    qtbot.waitUntil(lambda: bool(seen.of("steps")))
    assert seen.text("a") == "".join(ANSWER)
    kinds = [kind for kind, _ in seen.events if kind in {"text", "finished"}]
    assert kinds[-1] == "finished"
    assert kinds.count("finished") == 1
    assert seen.threads == {threading.get_ident()}
    token_ids = [token_id for _, _, ids in seen.of("text") for token_id in ids]
    assert token_ids == list(range(1, len(ANSWER) + 1))


def test_the_first_token_is_told_once(qtbot: QtBot, client: EngineClient, seen: Recorder) -> None:
    firsts: list[tuple[str, float]] = []
    client.first_token_arrived.connect(lambda request_id, seconds: firsts.append((request_id, seconds)))
    load(qtbot, client)
    client.submit(ask("a"))
    qtbot.waitUntil(lambda: "a" in seen.ends())
    [(request_id, seconds)] = firsts
    assert request_id == "a"
    assert seconds > 0


def test_loading_is_told_with_progress(qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script) -> None:
    load(qtbot, client)
    assert seen.states() == [EngineState.LOADING, EngineState.READY]
    assert seen.of("progress")[-1].fraction == 1.0
    assert client.status.info is not None
    assert client.status.info.name == "fake"
    assert script.engines[0].thread_id != threading.get_ident()


def test_a_request_without_a_model_fails_with_a_sentence(qtbot: QtBot, client: EngineClient, seen: Recorder) -> None:
    client.submit(ask("a"))
    assert seen.events == []  # nothing happens inside the call
    with qtbot.waitSignal(client.request_failed):
        pass
    assert seen.of("failed")[0].message == "No model is loaded. Choose one first."
    assert client.open_requests == frozenset()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelError("The file is cut short."), "The file is cut short."),
        (ValueError("odd"), "The model could not be loaded: odd."),
    ],
)
def test_a_failed_load_is_a_sentence_and_the_next_load_works(
    qtbot: QtBot, client: EngineClient, script: Script, error: Exception, message: str
) -> None:
    script.load_error = error
    client.load_model(EngineConfig(model="fake"))
    qtbot.waitUntil(lambda: client.status.state is EngineState.FAILED)
    assert client.status.message == message
    script.load_error = None
    load(qtbot, client)


def test_a_refused_request_leaves_the_others(
    qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script
) -> None:
    load(qtbot, client)
    script.submit_error = RequestError("The prompt is too long.")
    client.submit(ask("refused"))
    qtbot.waitUntil(lambda: seen.ends() == {"refused": ["failed"]})
    script.submit_error = None
    client.submit(ask("taken"))
    qtbot.waitUntil(lambda: seen.ends() == {"refused": ["failed"], "taken": ["finished"]})


def test_cancelling_twice_ends_once(qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script) -> None:
    script.answer = lambda _request: ("x",) * 1_000_000
    script.pause_s = 0.001
    load(qtbot, client)
    client.submit(ask("a"))
    qtbot.waitUntil(lambda: seen.text("a") != "")
    client.cancel("a")
    client.cancel("a")
    client.cancel("never seen")
    client.submit(ask("b", max_tokens=2))
    qtbot.waitUntil(lambda: "b" in seen.ends())
    assert seen.ends() == {"a": ["finished"], "b": ["finished"]}
    assert seen.of("finished")[0].reason is FinishReason.CANCELLED
    assert len(seen.text("a")) == seen.of("finished")[0].new_tokens


def test_a_broken_step_tells_every_open_request(
    qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script
) -> None:
    script.step_error = (3, RuntimeError("no memory"))
    script.step_gate = threading.Semaphore(0)
    load(qtbot, client)
    for name in "abc":
        client.submit(ask(name))
    for _ in range(3):
        script.step_gate.release()
    qtbot.waitUntil(lambda: client.status.state is EngineState.FAILED)
    assert seen.ends() == {name: ["failed"] for name in "abc"}
    assert {failed.message for failed in seen.of("failed")} == {
        "The engine stopped: no memory. Load the model again to go on."
    }
    assert "RuntimeError" in client.status.details
    script.step_gate = script.step_error = None
    load(qtbot, client)
    client.submit(ask("d"))
    qtbot.waitUntil(lambda: "d" in seen.ends())


def test_a_dead_thread_is_told_and_a_new_one_loads(
    qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script
) -> None:
    script.step_error = (2, SystemExit("first"))
    script.cancel_error = SystemExit("second")
    load(qtbot, client)
    client.submit(ask("a"))
    client.submit(ask("b"))
    qtbot.waitUntil(lambda: client.status.state is EngineState.FAILED)
    assert seen.ends() == {"a": ["failed"], "b": ["failed"]}
    assert "thread ended" in client.status.message
    assert "SystemExit" in client.status.details
    assert not client.is_running
    script.step_error = script.cancel_error = None
    script.engines.clear()
    load(qtbot, client)
    client.submit(ask("c"))
    qtbot.waitUntil(lambda: seen.ends().get("c") == ["finished"])


def test_block_maps_and_rows_come_only_while_watched(
    qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script
) -> None:
    script.answer = lambda _request: ("x",) * 1_000_000
    script.pause_s = 0.001
    client.set_watched(True)  # before there is a thread
    load(qtbot, client)
    client.submit(ask("a"))
    qtbot.waitUntil(lambda: any(block_map.owners for block_map in seen.of("map")))
    assert any(step.rows for steps in seen.of("steps") for step in steps)
    client.set_watched(False)
    qtbot.waitUntil(lambda: not seen.of("steps")[-1][-1].rows)
    maps = len(seen.of("map"))
    steps = len(seen.of("steps"))
    qtbot.waitUntil(lambda: len(seen.of("steps")) > steps + 10)
    assert len(seen.of("map")) == maps


@pytest.mark.parametrize("state", ["never started", "idle", "loading", "generating"])
def test_stop_ends_the_thread_in_every_state(
    qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script, state: str
) -> None:
    script.answer = lambda _request: ("x",) * 1_000_000
    script.load_gate = threading.Event()
    if state != "loading":
        script.load_gate.set()
    if state in {"idle", "generating"}:
        load(qtbot, client)
    if state == "loading":
        client.load_model(EngineConfig(model="fake"))
        client.submit(ask("deferred"))
        qtbot.waitUntil(lambda: client.status.state is EngineState.LOADING)
    if state == "generating":
        script.pause_s = 0.001
        client.submit(ask("open"))
        qtbot.waitUntil(lambda: seen.text("open") != "")
    with qtbot.waitSignal(client.stopped):
        client.stop()
        client.stop()
    assert not client.is_running
    assert client.open_requests == frozenset()
    assert all(len(ends) == 1 for ends in seen.ends().values())
    assert set(seen.ends()) == {"loading": {"deferred"}, "generating": {"open"}}.get(state, set())


def test_after_stop_a_request_is_refused_and_no_thread_starts(
    qtbot: QtBot, client: EngineClient, seen: Recorder
) -> None:
    with qtbot.waitSignal(client.stopped):
        client.stop()
    client.load_model(EngineConfig(model="fake"))
    client.submit(ask("late"))
    qtbot.waitUntil(lambda: seen.ends() == {"late": ["failed"]})
    assert not client.is_running


def test_loading_another_model_gives_up_the_first(
    qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script
) -> None:
    script.load_gate = threading.Event()
    client.load_model(EngineConfig(model="first"))
    qtbot.waitUntil(lambda: bool(seen.of("progress")))
    client.load_model(EngineConfig(model="second"))
    qtbot.waitUntil(lambda: EngineStatus(EngineState.EMPTY, message="Loading was cancelled.") in seen.of("status"))
    script.load_gate.set()
    qtbot.waitUntil(lambda: client.status.state is EngineState.READY)
    assert [engine.info.name for engine in script.engines] == ["second"]


def test_a_flood_does_not_stall_the_window(qtbot: QtBot, client: EngineClient, seen: Recorder, script: Script) -> None:
    """20,000 steps without a pause: the window keeps ticking, and hears in frames, not in steps."""
    steps = 20_000
    ticks: list[float] = []
    timer = QTimer(interval=5)
    timer.timeout.connect(lambda: ticks.append(time.monotonic()))
    script.answer = lambda _request: ("x",) * steps
    load(qtbot, client)
    timer.start()
    for name in "abcd":
        client.submit(ask(name))
    qtbot.waitUntil(lambda: len(seen.ends()) == 4)
    timer.stop()
    assert all(seen.text(name) == "x" * steps for name in "abcd")
    frames = len(seen.of("steps"))
    assert frames < steps / 10
    assert len(seen.of("text")) <= 4 * (frames + 1)
    assert len(ticks) >= frames, "the window did not come to its other work between two frames"
