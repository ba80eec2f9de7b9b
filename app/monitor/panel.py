"""The dashboard: the three graphs below each other, and the one clock that draws them.

Data only marks a plot as dirty. One timer draws what is dirty, at most four times a second, and stops when there is
nothing to draw or nobody to see it.
"""

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from app.gpu.record import MemorySample, ReleaseReport
from app.monitor import release_words as words
from app.monitor.blocks_panel import BlocksPanel
from app.monitor.memory_panel import MemoryPanel
from app.monitor.release_dialog import ReleaseDialog
from app.monitor.steps_panel import StepsPanel
from app.plots.colours import SEQUENCE_COLOURS, ColourBook
from app.theme import Theme
from engine.events import BlockMap, EngineState, EngineStatus, StepStats

FRAME_MS = 250  # a frame of all graphs takes 6 ms: 2.4 % of the thread
STALE_AFTER_S = 3.5
_HEIGHTS = (324, 248, 208)
_BLOCKS_WORDS = {
    EngineState.EMPTY: "No model is loaded. KV blocks appear here when one is.",
    EngineState.LOADING: "The model is loading. Its KV blocks appear here in a moment.",
    EngineState.FAILED: "The engine has stopped. KV blocks appear here when a model is loaded again.",
}
_STEPS_WORDS = {
    EngineState.EMPTY: "No model is loaded. The tokens of each step appear here when one answers.",
    EngineState.LOADING: "The model is loading. The tokens of each step appear here when it answers.",
    EngineState.FAILED: "The engine has stopped. Steps appear here when a model is loaded again.",
    EngineState.READY: "Nothing computed yet. Send a message, and the tokens of each step appear here.",
}


class ShortNames:
    """#1, #2, … in the order in which requests are first seen: for whoever has no better names."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, request_id: str) -> str:
        """The name of a request."""
        return f"#{self._numbers.setdefault(request_id, len(self._numbers) + 1)}"


class Dashboard(QWidget):
    """Takes values by its slots and asks by its signals.

    `release_requested` and `kill_requested` carry a tuple of ProcessIdentity; `restart_requested` asks for a new
    sampler. `sequence_colours` may be shared, so that a sequence has one colour everywhere.
    """

    release_requested = Signal(object)
    kill_requested = Signal(object)
    restart_requested = Signal()

    def __init__(
        self,
        theme: Theme,
        *,
        name_of: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._clock = clock
        self._marked: ReleaseReport | None = None
        self._trouble = ""
        self.sequence_colours: ColourBook[str] = ColourBook(SEQUENCE_COLOURS)
        self.memory = MemoryPanel(theme)
        self.blocks = BlocksPanel(theme, self.sequence_colours, name_of or ShortNames(), clock)
        self.steps = StepsPanel(theme, clock)
        self.dialog = ReleaseDialog(self)
        self._lay_out()
        self._make_timers()
        self._connect()
        self.on_status(EngineStatus(EngineState.EMPTY))

    @property
    def repaints(self) -> dict[str, int]:
        """How often each plot was painted."""
        plots = (self.memory.plot, self.blocks.history, self.blocks.map, self.steps.bars, self.steps.queue)
        return {plot.accessibleName(): plot.repaints for plot in plots}

    @property
    def is_drawing(self) -> bool:
        """Whether the frame timer runs."""
        return self._frame_timer.isActive()

    @Slot(object)
    def on_sample(self, sample: MemorySample) -> None:
        """One look at the memory."""
        self._trouble = ""
        self.memory.on_sample(sample)
        if self.dialog.isVisible():
            self.dialog.on_sample(sample)
        self.blocks.history.mark_dirty()  # its time goes on, too
        self._stale_timer.start()
        self._request_frame()

    @Slot(object)
    def on_steps(self, steps: tuple[StepStats, ...]) -> None:
        """The steps since the last frame."""
        self.blocks.on_steps(steps)
        self.steps.on_steps(steps)
        self._request_frame()

    @Slot(object)
    def on_block_map(self, block_map: BlockMap) -> None:
        """Who holds each block."""
        self.blocks.on_block_map(block_map)
        self._request_frame()

    @Slot(object)
    def on_status(self, status: EngineStatus) -> None:
        """Another state of the engine."""
        info = status.info
        self.steps.show_words(_STEPS_WORDS[status.state])
        self.steps.set_budget(info.max_num_batched_tokens if info is not None else 0)
        if info is None:
            self.blocks.show_words(_BLOCKS_WORDS[status.state])
        else:
            self.blocks.show_pool(info.num_blocks, info.block_size_tokens)
            self.memory.add_mark(self._clock(), f"{info.name} ready")
        self._request_frame()

    @Slot(object)
    def on_release(self, report: ReleaseReport) -> None:
        """How far a release is; its end is written into the graph."""
        self.dialog.on_release(report)
        if report.finished and report != self._marked:
            self._marked = report
            self.memory.add_mark(self._clock(), words.outcome_text(report))
        self._request_frame()

    @Slot(str)
    def on_sampler_trouble(self, message: str) -> None:
        """A look at the memory failed; said when no newer one comes."""
        self._trouble = message

    @Slot(str)
    def on_sampler_failed(self, message: str) -> None:
        """The sampler has ended."""
        self._stale_timer.stop()
        self.memory.show_failure(message)
        self.dialog.on_failure(message)

    @Slot(str)
    def on_release_failed(self, message: str) -> None:
        """A release could not begin."""
        self.dialog.on_failure(message)

    def open_release_dialog(self) -> None:
        """Show "Free memory…"."""
        sample = self.memory.plot.history.sample
        if sample is not None:
            self.dialog.on_sample(sample)
        self.dialog.open_again()

    def showEvent(self, event: QShowEvent) -> None:
        """Draw what came while nobody could see it."""
        super().showEvent(event)
        self._frame_timer.start()

    def _lay_out(self) -> None:
        self.splitter = QSplitter(Qt.Orientation.Vertical)
        self.splitter.setHandleWidth(10)
        self.splitter.setChildrenCollapsible(False)
        for card in (self.memory, self.blocks, self.steps):
            self.splitter.addWidget(card)
        self.splitter.setSizes(list(_HEIGHTS))
        for index, height in enumerate(_HEIGHTS):
            self.splitter.setStretchFactor(index, height)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.splitter)
        self.setMinimumWidth(320)

    def _make_timers(self) -> None:
        self._frame_timer = QTimer(self)
        self._frame_timer.setInterval(FRAME_MS)
        self._frame_timer.timeout.connect(self._draw_frame)
        self._stale_timer = QTimer(self)
        self._stale_timer.setInterval(1000)
        self._stale_timer.timeout.connect(self.check_age)

    def _connect(self) -> None:
        self.memory.free_requested.connect(self.open_release_dialog)
        self.memory.restart_requested.connect(self.restart_requested)
        self.dialog.release_requested.connect(self.release_requested)
        self.dialog.kill_requested.connect(self.kill_requested)

    @property
    def _panels(self) -> tuple[MemoryPanel, BlocksPanel, StepsPanel]:
        return self.memory, self.blocks, self.steps

    def _request_frame(self) -> None:
        if not self._frame_timer.isActive() and self.memory.plot.is_seen:
            self._frame_timer.start()

    def _draw_frame(self) -> None:
        if not any(panel.needs_drawing for panel in self._panels):
            self._frame_timer.stop()
        for panel in self._panels:
            panel.refresh()

    @Slot()
    def check_age(self) -> None:
        """Grey the memory graph when its newest sample is old."""
        sample = self.memory.plot.history.sample
        if sample is None or not self.memory.plot.is_seen:
            return  # nobody looks, so the sampler has good reason to be slow
        if self._clock() - sample.time_s > STALE_AFTER_S:
            self.memory.show_age(self._clock() - sample.time_s, self._trouble)
