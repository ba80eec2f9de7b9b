"""The real program in this process, driven from its own event loop: sixteen conversations, and what they cost."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer

from app.desktop import Desktop
from app.monitor.panel import Dashboard
from app.opening import prepare
from app.options import WindowOptions
from engine.events import EngineState, StepStats
from engine.loop import EngineFactory
from engine.requests import SamplingParams

HAND_S = 0.05  # between two things that a user does
PROMPTS = tuple(f"Tell a long story about {what}, with many details." for what in (
    "a river", "a lighthouse", "two brothers", "a lost letter", "the first snow", "an old clock", "a small bakery",
    "a voyage", "the last train", "a garden", "a forest at night", "a mountain hut", "a painter", "a busy harbour",
    "a library", "a winter market",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment. Times in seconds."""

    wall_s: float
    gui_cpu_s: float
    process_cpu_s: float
    steps: int
    tokens: int
    repaints: dict[str, int]


class Program:
    """Window, engine and sampler as the user has them, in a data folder of their own.

    Args:
        folder: an empty data folder.
        model: the model's file.
        load_engine: None takes the real engine.
    """

    def __init__(self, folder: Path, model: Path | None, *, load_engine: EngineFactory | None = None) -> None:
        # One thread computes, so that on two cores one is left to the window.
        settings = {"threads": 1, "fetch_starter": False, "last_model": str(model or "")}
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        opening = prepare(WindowOptions(data_dir=folder))
        assert opening is not None
        self.desktop = Desktop(opening, load_engine=load_engine)
        self.client = self.desktop.client
        self.chat = self.desktop.chat.controller
        self.steps = self.tokens = 0
        self.client.steps_arrived.connect(self._count_steps)

    @property
    def dashboard(self) -> Dashboard:
        """The graphs, once they are built."""
        assert self.desktop.side.dashboard is not None
        return self.desktop.side.dashboard

    def show(self) -> None:
        """Until the graphs are there."""
        self.desktop.window.show()
        self.wait(lambda: self.desktop.side.dashboard is not None)

    def wait_ready(self) -> None:
        """Until a model is loaded."""
        self.wait(lambda: self.client.status.state in (EngineState.READY, EngineState.FAILED))
        assert self.client.status.state is EngineState.READY, self.client.status.message

    def begin_streams(self, max_tokens: int) -> list[str]:
        """Sixteen conversations that are answered at once, the last one in view. Returns the answers' ids."""
        answers = []
        self.chat.sampling = SamplingParams(temperature=0.7, seed=1, ignore_eos=True, max_tokens=max_tokens)
        for prompt in PROMPTS:
            self.chat.new_conversation()
            assert self.chat.send(prompt)
            answers.append(self.chat.turns(self.chat.current_id)[-1].id)
            self.pause(HAND_S)
        return answers

    def stop_streams(self) -> None:
        """Stop every answer, and wait until the engine has."""
        for conversation in self.chat.conversations:
            self.chat.select(conversation.id)
            self.chat.stop()
            self.pause(HAND_S)
        self.wait(lambda: not self.client.open_requests)

    def wait(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        """Let the program live until `condition` holds."""
        loop, deadline_s = QEventLoop(), time.monotonic() + timeout_s
        timer = QTimer(interval=10)
        timer.timeout.connect(lambda: loop.quit() if condition() or time.monotonic() > deadline_s else None)
        timer.start()
        if not condition():
            loop.exec()
        timer.stop()
        assert condition(), "waited too long"

    def pause(self, seconds: float) -> None:
        """Let the program live without asking it anything."""
        loop = QEventLoop()
        QTimer.singleShot(round(seconds * 1e3), loop.quit)
        loop.exec()

    def read(self) -> Reading:
        """The counters now. Call it in the GUI's thread."""
        return Reading(
            wall_s=time.perf_counter(),
            gui_cpu_s=time.thread_time(),
            process_cpu_s=time.process_time(),
            steps=self.steps,
            tokens=self.tokens,
            repaints=dict(self.dashboard.repaints),
        )

    def close(self) -> None:
        """End everything in stages."""
        ended: list[bool] = []
        self.desktop.shutdown.ended.connect(ended.append)
        self.desktop.window.close()
        self.wait(lambda: bool(ended))
        self.desktop.close()

    def _count_steps(self, steps: tuple[StepStats, ...]) -> None:
        self.steps += len(steps)
        self.tokens += sum(step.decode_tokens for step in steps)


@contextmanager
def running(folder: Path, model: Path | None, *, load_engine: EngineFactory | None = None) -> Iterator[Program]:
    """A program that is ended at the end."""
    program = Program(folder, model, load_engine=load_engine)
    try:
        yield program
    finally:
        program.close()
