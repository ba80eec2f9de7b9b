"""The real window with the real engine's thread and the real starter model."""

import gc
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import EngineState, LoadProgress
from engine.loop import EngineLike
from engine.requests import SamplingParams
from tests.app.desk import Desk, OpenDesk, open_desks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.starter


ENDLESS = SamplingParams(temperature=0.0, ignore_eos=True)


class Witness:
    """Loads real engines and notes in which threads they are built, stepped and closed."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.closed = 0

    def load(self, config: EngineConfig, on_progress: Callable[[LoadProgress], None]) -> EngineLike:
        engine = Engine.load(config, on_progress)
        step, close = engine.step, engine.close

        def noting_step() -> object:
            self.threads.add(threading.get_ident())
            return step()

        def noting_close() -> None:
            self.threads.add(threading.get_ident())
            self.closed += 1
            close()

        self.threads.add(threading.get_ident())
        engine.step = noting_step  # type: ignore[method-assign, assignment]
        engine.close = noting_close  # type: ignore[method-assign]
        return engine


@pytest.fixture
def open_desk(qtbot: QtBot, tmp_path: Path) -> Iterator[OpenDesk]:
    with open_desks(qtbot, tmp_path) as open_desk:
        yield open_desk


def tensor_bytes() -> int:
    """What all live tensors of this process hold; views count again."""
    import torch

    gc.collect()
    tensors = {id(found): found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def words(desk: Desk) -> int:
    return len(desk.transcript.split())


def test_a_whole_conversation_with_the_starter(open_desk: OpenDesk, starter_gguf: Path) -> None:
    """Type, see text, stop, a second conversation at once, switch, lose the sampler, close."""
    witness = Witness()
    before = tensor_bytes()
    desk = open_desk(model=str(starter_gguf), load_engine=witness.load)
    desk.wait_ready()
    assert tensor_bytes() - before > 200_000_000

    desk.desktop.chat.controller.sampling = ENDLESS
    desk.ask("Write a very long story about a river and the people who live beside it.")
    desk.wait(lambda: words(desk) > 40)
    desk.press(Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    desk.ask("Count from one to one hundred in words, one number a line.")
    desk.wait(lambda: words(desk) > 25)
    assert len(desk.client.open_requests) == 2
    assert "river" not in desk.transcript.split("Count from")[0]

    assert desk.desktop.side.sampler is not None
    desk.desktop.side.sampler.set_pace(None)  # type: ignore[arg-type] # what cannot be, to break it
    desk.wait(lambda: not desk.desktop.side.is_running)
    seen = words(desk)
    desk.wait(lambda: words(desk) > seen)

    desk.choose(desk.titles[1])
    desk.wait(lambda: "river" in desk.transcript)
    desk.press(Qt.Key.Key_Escape)
    desk.wait(lambda: len(desk.client.open_requests) <= 1)
    stopped = desk.transcript
    desk.choose(desk.titles[0])
    desk.press(Qt.Key.Key_Escape)
    desk.wait(lambda: not desk.client.open_requests)
    desk.choose(desk.titles[1])
    desk.wait(lambda: words(desk) > 40)
    assert desk.transcript == stopped

    desk.close()
    assert witness.closed == 1
    assert len(witness.threads) == 1
    assert threading.get_ident() not in witness.threads
    assert tensor_bytes() - before < 10_000_000, "somebody else holds on to the engine's tensors"


def test_another_model_replaces_the_first_one(open_desk: OpenDesk, starter_gguf: Path, tmp_path: Path) -> None:
    """A file that is cut short says so; then the good one loads again."""
    cut = tmp_path / "cut.gguf"
    with starter_gguf.open("rb") as source:
        cut.write_bytes(source.read(3_000_000))
    desk = open_desk(load_engine=Witness().load)
    desk.desktop.models.load_path(str(cut))
    desk.wait(lambda: desk.client.status.state is EngineState.FAILED)
    assert any("cut.gguf cannot be used" in text for text in desk.texts)
    desk.desktop.models.load_path(str(starter_gguf))
    desk.wait_ready()
    desk.ask("Say hello.")
    desk.wait(lambda: any("tok/s" in text and "–" not in text for text in desk.texts))
    desk.wait(lambda: not desk.client.open_requests)


@pytest.mark.xvfb
@pytest.mark.skipif(shutil.which("xvfb-run") is None, reason="Xvfb is not installed")
def test_a_real_window_under_xvfb_plays_a_scenario_into_a_picture(tmp_path: Path, starter_gguf: Path) -> None:
    picture = tmp_path / "window.png"
    kept = {name: value for name, value in os.environ.items() if name not in {"QT_QPA_PLATFORM", "DISPLAY"}}
    done = subprocess.run(
        [
            "xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", sys.executable, "-m", "app.main", "-m", str(starter_gguf),
            "--scenario", "seed", "--screenshot", str(picture), "--data-dir", str(tmp_path),
        ],
        cwd=ROOT, env=kept, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    image = QImage(str(picture))
    assert (image.width(), image.height()) == (1440, 900)
    assert "ERROR" not in (tmp_path / "kvscope.log").read_text()
