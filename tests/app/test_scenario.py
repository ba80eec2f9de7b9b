"""A scenario is submitted once and its end is told once."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.engine_client import EngineClient
from app.scenario import ScenarioRun
from engine.config import EngineConfig
from engine.events import EngineState
from engine.requests import Request
from engine.trace.scenarios import scenario
from tests.fakes.engine import Script


@pytest.fixture
def client(qtbot: QtBot) -> Iterator[EngineClient]:
    client = EngineClient(load_engine=Script().factory)
    yield client
    client.stop()
    qtbot.waitUntil(lambda: not client.is_running)


@pytest.mark.parametrize("name", ["seed", "slots"])
def test_all_requests_end_and_then_it_says_so(qtbot: QtBot, client: EngineClient, name: str) -> None:
    play = scenario(name)
    ended: list[str] = []
    client.request_finished.connect(lambda end: ended.append(end.request_id))
    run = ScenarioRun(play, client)
    progress: list[int] = []
    run.progressed.connect(progress.append)
    ends: list[int] = []
    run.ended.connect(lambda: ends.append(len(ended)))
    client.load_model(EngineConfig(model="fake"))
    qtbot.waitUntil(lambda: bool(ends))
    assert sorted(ended) == sorted(request.name for request in play.requests)
    assert progress == list(range(1, len(play.requests) + 1))
    client.load_model(EngineConfig(model="fake"))  # another model is not another scenario
    qtbot.waitUntil(lambda: client.status.state is EngineState.READY)
    client.submit(Request(request_id="mine", text="hello"))
    qtbot.waitUntil(lambda: "mine" in ended)
    assert ends == [len(play.requests)]
