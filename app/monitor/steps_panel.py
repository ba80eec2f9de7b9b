"""Graph 3: the card with the tokens of each step, and the sequences that ran and waited."""

import time
from collections.abc import Callable

from PySide6.QtCore import Slot

from app.monitor.rhythm import Rhythm
from app.plots.legend import Entry, Legend, Swatch
from app.plots.step_bars import RUNNING_COLOUR, WAITING_COLOUR, QueueStrip, StepBars, StepSeries
from app.theme import DECODE_COLOUR, PREFILL_COLOUR, Theme
from app.widgets import Card
from engine.events import StepStats

WORDS_PERIOD_S = 0.5


class StepsPanel(Card):
    """Shows steps."""

    def __init__(self, theme: Theme, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("Batching steps")
        self._theme = theme
        self._preempted = 0
        self._words_are_old = False
        self._rhythm = Rhythm(WORDS_PERIOD_S, clock)
        self._newest: StepStats | None = None
        self._series = StepSeries()
        self.bars = StepBars(theme, self._series)
        self.bars.setAccessibleName("Prefill and decode tokens of the last steps")
        self.queue = QueueStrip(theme, self._series)
        self.queue.setAccessibleName("Running and waiting sequences of the last steps")
        self.legend = Legend(theme)
        self.body.setSpacing(0)
        self.body.addWidget(self.bars, 3)
        self.body.addWidget(self.queue, 2)
        self.body.addSpacing(6)
        self.body.addWidget(self.legend)
        self.bars.setMinimumHeight(60)
        self.queue.setMinimumHeight(48)

    @property
    def needs_drawing(self) -> bool:
        """Whether a step has come that is not drawn."""
        words = self._words_are_old and self.bars.is_seen
        return self.bars.needs_drawing or self.queue.needs_drawing or words

    def show_words(self, text: str) -> None:
        """No steps: say what will be here."""
        self._newest = None
        self._preempted = 0
        self._series.clear()
        self.bars.set_message(text)
        self.bars.mark_dirty()
        self.queue.setVisible(not text)
        self.legend.set_entries(())
        self.values.setText("")

    def set_budget(self, tokens: int) -> None:
        """How many tokens a step may compute at most."""
        self.bars.set_budget(tokens)

    @Slot(object)
    def on_steps(self, steps: tuple[StepStats, ...]) -> None:
        """Take steps; drawn at the next `refresh`."""
        for stats in steps:
            self._series.push(stats)
            self._preempted += stats.preempted
            self._newest = stats
        if steps:
            self.bars.set_message("")
            self.queue.setVisible(True)
            self._words_are_old = True
            self.bars.mark_dirty()
            self.queue.mark_dirty()

    def refresh(self) -> None:
        """Draw what came; numbers that change faster than twice a second cannot be read."""
        words_due = self._words_are_old and self.bars.is_seen and self._rhythm.take_turn()
        if self._newest is not None and words_due:
            self._words_are_old = False
            self.values.setText(values_text(self._newest, self._preempted))
            self.legend.set_entries(self._entries(self._newest))
        self.bars.refresh()
        self.queue.refresh()

    def _entries(self, newest: StepStats) -> tuple[Entry, ...]:
        return (
            Entry(f"prefill {newest.prefill_tokens:,}", PREFILL_COLOUR),
            Entry(f"decode {newest.decode_tokens:,}", DECODE_COLOUR),
            Entry(f"running {newest.running}", RUNNING_COLOUR),
            Entry(f"waiting {newest.waiting}", WAITING_COLOUR, Swatch.HATCHED),
            *((Entry(f"preempted {self._preempted}", self._theme.colours.text),) if self._preempted else ()),
        )


def values_text(newest: StepStats, preempted: int) -> str:
    """The card's values: "step 1,482 · 7 running · 2 waiting · 0 preempted"."""
    return f"step {newest.step:,} · {newest.running} running · {newest.waiting} waiting · {preempted} preempted"
