"""What is measured, one function for each process that measures it. Each returns plain values for JSON."""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QObject
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QWidget

from app.chat.conversation import Conversation, Role, Turn, TurnState
from app.chat.history import History
from engine.config import EngineConfig
from engine.events import LoadProgress
from engine.loop import EngineLike
from tests.bench.program import Program, Reading, running
from tests.bench.stalls import Ticker

SETTLE_S = 2.0
STREAM_S = 10.0
IDLE_S = 20.0
NUM_SLEEPERS = 300
LONG_CHARS = 30_000
PHASE_TOKENS = 48
TYPED = "typed while torch is being imported"

SECTION = """## Part {number}

A paragraph with **bold**, *italic* and `code` words that goes on long enough to need several lines in the window, so
that the layout has work to do with it.

- first point of the list
- second point, with a [link](https://example.org/{number})

| name | value |
|---|---|
| alpha | {number} |
| beta | two |

```python
def part_{number}(values: list[int]) -> int:
    total = 0
    for value in values:
        total += value * {number}  # a comment
    return total
```

"""


def long_answer(chars: int) -> str:
    """Markdown of every kind, about as long as told."""
    text = ""
    while len(text) < chars:
        text += SECTION.format(number=text.count("## "))
    return text[:chars]


class PaintCounter(QObject):
    """Counts the paint events of every widget of the program, by class."""

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self.paints: dict[str, int] = {}
        application.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Look on only."""
        if event.type() == QEvent.Type.Paint and isinstance(watched, QWidget):
            parent = watched.parent()
            inside = isinstance(parent, QAbstractScrollArea) and watched is parent.viewport()
            name = type(parent if inside else watched).__name__
            self.paints[name] = self.paints.get(name, 0) + 1
        return False


def measure_streams(folder: Path, model: Path) -> dict[str, Any]:
    """(a) The GUI's thread while sixteen conversations stream, one of them in view, all graphs live."""
    with running(folder, model) as program:
        program.show()
        program.wait_ready()
        program.pause(SETTLE_S)
        short, long = _streams(program, long_first=False), _streams(program, long_first=True)
        counted = _counted_paints(program)
    return {"streams": short, "streams_long_answer": long, "paints_by_widget": counted}


def _streams(program: Program, *, long_first: bool) -> dict[str, Any]:
    program.begin_streams(max_tokens=1500)
    program.wait(lambda: program.steps > 0)
    if long_first:
        _make_long(program)
    program.pause(SETTLE_S)
    before = program.read()
    program.pause(STREAM_S)
    after = program.read()
    assert len(program.client.open_requests) == 16
    program.stop_streams()
    return _difference(before, after)


def _make_long(program: Program) -> None:
    """The answer in view already holds very much."""
    request_id = next(
        each for each in program.client.open_requests if program.chat.conversation_of(each) == program.chat.current_id
    )
    program.chat.on_text(request_id, long_answer(LONG_CHARS), 1)


def _counted_paints(program: Program) -> dict[str, float]:
    """Paints a second of each kind of widget; counting costs time, so it is done by itself."""
    application = QApplication.instance()
    assert isinstance(application, QApplication)
    program.begin_streams(max_tokens=1500)
    program.pause(SETTLE_S)
    counter = PaintCounter(application)
    program.pause(5.0)
    application.removeEventFilter(counter)
    program.stop_streams()
    return {name: round(count / 5.0, 1) for name, count in sorted(counter.paints.items())}


def _difference(before: Reading, after: Reading) -> dict[str, Any]:
    wall_s = after.wall_s - before.wall_s
    return {
        "seconds": round(wall_s, 2),
        "gui_cpu_percent": round(100 * (after.gui_cpu_s - before.gui_cpu_s) / wall_s, 2),
        "process_cpu_percent": round(100 * (after.process_cpu_s - before.process_cpu_s) / wall_s, 1),
        "steps_per_s": round((after.steps - before.steps) / wall_s, 1),
        "tokens_per_s": round((after.tokens - before.tokens) / wall_s, 1),
        "repaints": {name: after.repaints[name] - before.repaints[name] for name in after.repaints},
    }


class StepClock:
    """Loads real engines and adds up what their steps take, in their own thread."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0
        self.steps = 0

    def load(self, config: EngineConfig, on_progress: Callable[[LoadProgress], None]) -> EngineLike:
        from engine.engine import Engine

        engine = Engine.load(config, on_progress)
        step = engine.step

        def timed_step() -> Any:
            cpu_s, wall_s = time.thread_time(), time.perf_counter()
            output = step()
            self.cpu_s += time.thread_time() - cpu_s
            self.wall_s += time.perf_counter() - wall_s
            self.steps += 1
            return output

        engine.step = timed_step  # type: ignore[method-assign]
        return engine


def measure_cost(folder: Path, model: Path, phases: int) -> dict[str, Any]:
    """(b) The same work with the window live and with nobody looking, in turns.

    Nobody looking: the window is hidden and the mailbox stays closed until the work is done, so the GUI's thread does
    nothing at all.
    """
    clock = StepClock()
    with running(folder, model, load_engine=clock.load) as program:
        program.show()
        program.wait_ready()
        answers = program.begin_streams(max_tokens=PHASE_TOKENS)
        program.wait(lambda: not program.client.open_requests)
        _phase(program, clock, answers)  # every prompt is a prefix of the cache from here on
        live, hidden = [], []
        for _ in range(phases):
            live.append(_phase(program, clock, answers))
            with _nobody_looking(program):
                hidden.append(_phase(program, clock, answers))
    costs = [100 * (1 - its["steps_per_s"] / alone["steps_per_s"]) for its, alone in zip(live, hidden, strict=True)]
    cpu = [
        its["cpu_s"] / its["steps"] / (alone["cpu_s"] / alone["steps"]) for its, alone in zip(live, hidden, strict=True)
    ]
    return {
        "cost_percent_median": round(statistics.median(costs), 2),
        "cost_percent_all": [round(cost, 1) for cost in costs],
        "step_cpu_ratio_median": round(statistics.median(cpu), 3),
        "steps_per_s_live": [round(phase["steps_per_s"], 2) for phase in live],
        "steps_per_s_alone": [round(phase["steps_per_s"], 2) for phase in hidden],
    }


def _phase(program: Program, clock: StepClock, answers: list[str]) -> dict[str, float]:
    """All sixteen answers again; the time from the first step's begin to the last one's end."""
    ends: list[float] = []
    steps, cpu_s = clock.steps, clock.cpu_s
    begun_s = time.perf_counter()
    for answer in answers:
        program.chat.retry(answer)
    wanted = steps + PHASE_TOKENS
    program.wait(lambda: clock.steps >= wanted and (ends.append(time.perf_counter()) or True))
    program.pause(0.3)
    done = clock.steps - steps
    return {"steps": done, "cpu_s": clock.cpu_s - cpu_s, "steps_per_s": done / (ends[0] - begun_s)}


@contextmanager
def _nobody_looking(program: Program) -> Iterator[None]:
    client = program.client
    program.desktop.window.hide()
    program.pause(0.1)
    client._woken.disconnect(client._on_woken)
    try:
        yield
    finally:
        client._drain()
        client._woken.connect(client._on_woken)
        program.desktop.window.show()
        program.wait(lambda: not client.open_requests)
        program.pause(0.3)


def measure_stalls(folder: Path, model: Path) -> dict[str, Any]:
    """(c) How late the event loop is, whatever the user does."""
    _keep_long_conversation(folder)
    ticker = Ticker()

    def load(config: EngineConfig, on_progress: Callable[[LoadProgress], None]) -> EngineLike:
        ticker.enter("import of torch")
        from engine.engine import Engine

        ticker.enter("loading the model")
        return Engine.load(config, on_progress)

    with running(folder, model, load_engine=load) as program:
        ticker.start("start of the window")
        program.show()
        typed = _type_while_loading(program)
        ticker.enter("idle")
        program.pause(1.0)
        for name, act in _acts(program):
            ticker.enter(name)
            act()
            ticker.enter("after it")
            program.pause(0.3)
        ticker.stop()
    found = {name: asdict(lateness) for name, lateness in ticker.by_phase().items()}
    return {"typing_kept": typed, "phases": found}


def _type_while_loading(program: Program) -> bool:
    field = program.desktop.chat.pane.composer.field
    field.setFocus()
    for letter in TYPED:
        QTest.keyClick(field, letter)
        program.pause(0.05)
    program.wait_ready()
    kept = field.toPlainText() == TYPED
    field.clear()
    return kept


def _acts(program: Program) -> list[tuple[str, Callable[[], None]]]:
    window = program.desktop.window

    def stream() -> None:
        program.begin_streams(max_tokens=1500)
        program.pause(8.0)

    def open_long() -> None:
        long_id = next(each.id for each in program.chat.conversations if each.title == "A long one")
        for _ in range(3):
            program.chat.select(program.chat.conversations[0].id)
            program.pause(0.4)
            program.chat.select(long_id)
            program.pause(1.0)

    def resize() -> None:
        for step in range(24):
            window.resize(1440 - 20 * step, 900 - 8 * step)
            program.pause(0.05)
        window.resize(1440, 900)
        program.pause(0.3)

    def dialog() -> None:
        program.dashboard.open_release_dialog()
        program.pause(2.5)
        program.dashboard.dialog.close()

    def themes() -> None:
        for choice in ("dark", "light", "dark"):
            window.theme_chosen.emit(choice)
            program.pause(0.6)

    return [
        ("16 streams", stream),
        ("opening 30,000 characters", open_long),
        ("resizing with them in view", resize),
        ("changing the theme", themes),
        ("Free memory…", dialog),
        ("stopping 16 streams", program.stop_streams),
    ]


def _keep_long_conversation(folder: Path) -> None:
    history = History.open(folder / "conversations.sqlite3")
    now_s = time.time()
    history.save_conversation(Conversation(id="long", title="A long one", created_s=now_s, updated_s=now_s))
    for position, (role, text) in enumerate([(Role.USER, "Write much."), (Role.ASSISTANT, long_answer(LONG_CHARS))]):
        history.save_turn(
            Turn(
                id=f"long-{position}", conversation_id="long", position=position, role=role, text=text,
                state=TurnState.COMPLETE,
            )
        )  # fmt: skip
    history.flush()
    history.close()


def measure_idle(folder: Path, model: Path) -> dict[str, Any]:
    """(d) The whole process with nothing to do, and 300 more processes to look at."""
    with running(folder, model) as program, _sleepers(NUM_SLEEPERS):
        program.show()
        program.wait_ready()
        program.pause(3 * SETTLE_S)  # two looks until every name is settled, and some rest
        before = program.read()
        program.pause(IDLE_S)
        after = program.read()
        sample = program.dashboard.memory.plot.history.sample
        processes = len(sample.processes) if sample is not None else 0
    return {**_difference(before, after), "processes_shown": processes}


@contextmanager
def _sleepers(count: int) -> Iterator[None]:
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield
    finally:
        for sleeper in sleepers:
            sleeper.terminate()
        for sleeper in sleepers:
            sleeper.wait()
