"""The engine's QThread with a real engine on a tiny model: what is set per thread is set in this one."""

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from pytestqt.qtbot import QtBot

from app.bridge.engine_thread import EngineThread
from engine.commands import LoadModel, Stop, Submit
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import EngineEvent, StepOutput
from tests.fakes.tiny_model import chat_gguf, greedy, tiny_chat_model, tiny_config

State = tuple[int, bool, bool, torch.dtype]


def state() -> State:
    """What torch keeps for each thread by itself, or for the whole process."""
    return threading.get_ident(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()


class Listening:
    """A runner whose decoder says how it finds the thread."""

    def __init__(self, engine: Engine) -> None:
        self._decoder = engine._model.runner._decoder
        self.states: SimpleQueue[State] = SimpleQueue()
        engine._model.runner._decoder = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, *args: Any, **options: Any) -> Any:
        self.states.put(state())
        return self._decoder.forward(*args, **options)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path / "tiny.gguf")


@pytest.fixture
def heard() -> list[Listening]:
    return []


@pytest.fixture
def events() -> list[EngineEvent]:
    return []


@pytest.fixture
def thread(qtbot: QtBot, heard: list[Listening], events: list[EngineEvent]) -> Iterator[EngineThread]:
    def load(config: EngineConfig, on_progress: Any) -> Engine:
        engine = Engine.load(config, on_progress)
        heard.append(Listening(engine))
        return engine

    thread = EngineThread(events.append, load)
    thread.start()
    yield thread
    thread.commands.put(Stop())
    qtbot.waitUntil(thread.isFinished)
    assert thread.death == ""


def test_52_every_step_runs_without_gradients(
    qtbot: QtBot, thread: EngineThread, gguf: Path, heard: list[Listening], events: list[EngineEvent]
) -> None:
    before = state()
    thread.commands.put(LoadModel(tiny_config(gguf)))
    for name in "ab":
        thread.commands.put(Submit(greedy(name, list(range(50, 90)), 6)))

    def steps() -> list[StepOutput]:
        return [event for event in events if isinstance(event, StepOutput)]

    qtbot.waitUntil(lambda: {end.request_id for step in steps() for end in step.finished} == {"a", "b"}, timeout=60_000)
    (listening,) = heard
    states = [listening.states.get() for _ in range(listening.states.qsize())]
    assert len(states) == len(steps()) >= 6
    assert {found[1:3] for found in states} == {(False, True)}, "in inference mode, prefill and decode alike"
    assert {found[0] for found in states}.isdisjoint({before[0]}), "and not in the window's thread"
    assert {found[3] for found in states} == {before[3]}
    assert state() == before, "which knows nothing of it"
    assert before[1:3] == (True, False)
