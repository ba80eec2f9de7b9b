"""How late an event loop is: a fast timer's ticks, and what they say about an event that comes at any moment."""

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QObject, Qt, QTimer, Slot

TICK_S = 0.005
MOMENT_S = 0.001


@dataclass(frozen=True, slots=True)
class Gap:
    """Time between two ticks, in seconds of time.perf_counter."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """What an event waits that comes at any millisecond of a phase, in ms."""

    span_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float

    @classmethod
    def of(cls, gaps: Iterable[Gap]) -> "Lateness":
        """Weigh every moment alike: a stall of 100 ms counts for a hundred moments, the first of which waits longest.

        The timer's own period is no stall: it is taken off each gap.
        """
        lengths = [max(0.0, gap.end_s - gap.start_s - TICK_S) for gap in gaps]
        span_s = sum(length + TICK_S for length in lengths)
        waits = [np.arange(length, 0.0, -MOMENT_S) for length in lengths if length > 0]
        idle = max(0, math.floor(span_s / MOMENT_S) - sum(map(len, waits)))
        if not lengths:
            return cls(0.0, 0.0, 0.0, 0.0)
        every = np.concatenate([np.zeros(idle), *waits])
        p50, p99 = np.percentile(every, (50, 99)) * 1e3
        return cls(span_s, float(p50), float(p99), max(lengths) * 1e3)


class Ticker(QObject):
    """Ticks every 5 ms in the thread of the event loop, and keeps when it did."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.ticks_s: list[float] = []
        self.phases: list[tuple[float, str]] = []
        self._timer = QTimer(self, interval=round(TICK_S * 1e3), timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._tick)

    def start(self, phase: str) -> None:
        """Tick from now on."""
        self.enter(phase)
        self._tick()
        self._timer.start()

    def stop(self) -> None:
        """Tick no more."""
        self._timer.stop()
        self._tick()

    def enter(self, phase: str) -> None:
        """What happens from now on. Any thread."""
        self.phases.append((time.perf_counter(), phase))

    def by_phase(self) -> dict[str, Lateness]:
        """Lateness in each phase."""
        return {name: Lateness.of(gaps) for name, gaps in split(self.ticks_s, self.phases).items()}

    @Slot()
    def _tick(self) -> None:
        self.ticks_s.append(time.perf_counter())


def split(ticks_s: Sequence[float], phases: Sequence[tuple[float, str]]) -> dict[str, list[Gap]]:
    """The gaps of each phase; a gap that reaches over the end of a phase belongs to where most of it lies."""
    found: dict[str, list[Gap]] = {name: [] for _, name in phases}
    ends = [*(start for start, _ in phases[1:]), math.inf]
    for start_s, end_s in itertools.pairwise(ticks_s):
        shares = [
            (min(end_s, until) - max(start_s, since), name) for (since, name), until in zip(phases, ends, strict=True)
        ]
        found[max(shares)[1]].append(Gap(start_s, end_s))
    return found
