"""The chat on the real client and the real engine thread; only the model is scripted."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.engine_client import EngineClient
from app.chat.controller import ChatController
from app.chat.conversation import TurnState
from app.chat.history import History
from app.chat.pane import ChatPane
from app.theme import Theme
from engine.config import EngineConfig
from tests.fakes.engine import Script

WORDS = tuple(f"word{number} " for number in range(500))


@pytest.fixture
def script() -> Script:
    return Script(answer=lambda _request: WORDS, step_gate=threading.Semaphore(0))


@pytest.fixture
def live(qtbot: QtBot, script: Script) -> Iterator[EngineClient]:
    client = EngineClient(load_engine=script.factory)
    yield client
    assert script.step_gate is not None
    script.step_gate.release(1000)
    client.stop()
    qtbot.waitUntil(lambda: not client.is_running)


def test_two_prompts_stream_one_is_stopped_one_ends_and_both_are_kept(
    qtbot: QtBot, script: Script, live: EngineClient, theme: Theme, tmp_path: Path
) -> None:
    assert script.step_gate is not None
    path = tmp_path / "c.sqlite3"
    controller = ChatController(live, History.open(path))
    pane = ChatPane(controller, theme)
    qtbot.addWidget(pane)
    pane.show()
    pane.send("first, before there is a model")
    first = controller.current_id
    live.load_model(EngineConfig(model="fake"))
    controller.new_conversation()
    pane.send("second")
    second = controller.current_id
    gate = script.step_gate

    def both_stream() -> bool:
        gate.release()
        return all(controller.turns(each)[-1].text for each in (first, second))

    qtbot.waitUntil(both_stream)
    assert controller.is_running(first)
    controller.stop()
    stopped = controller.turns(second)[-1]
    gate.release(1000)
    qtbot.waitUntil(lambda: not controller.is_running(first))
    qtbot.waitUntil(lambda: controller.turns(second)[-1].stats is not None)
    answer = controller.turns(first)[-1]
    assert (answer.text, answer.state) == ("".join(WORDS), TurnState.COMPLETE)
    assert answer.stats is not None
    assert answer.stats.new_tokens >= len(WORDS)
    assert controller.turns(second)[-1].text == stopped.text
    assert "".join(WORDS).startswith(stopped.text)
    assert pane.transcript.views[-1].browser.toPlainText() == stopped.text.rstrip()
    controller.close()
    kept = History.open(path)
    assert kept.turns(first)[-1].text == answer.text
    assert kept.turns(second)[-1].state is TurnState.STOPPED
    kept.close()
