"""The line at the bottom of the window: what is loaded, how fast it answers, and how busy it is.

It knows the engine's values, not the engine: whoever owns the client connects its signals to the `on_…` methods.
"""

import time
from collections import deque
from collections.abc import Callable

from PySide6.QtCore import QTimer, Slot
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.theme import SPACE_PX
from app.widgets import ElidedLabel
from engine.events import EngineState, EngineStatus, LoadProgress, RequestFinished, StepStats

SPEED_WINDOW_S = 2.0
REFRESH_MS = 500


class SpeedMeter:
    """Tokens per second over the last two seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._arrivals: deque[tuple[float, int]] = deque()

    def add(self, tokens: int) -> None:
        """Tokens that have just arrived."""
        self._arrivals.append((self._clock(), tokens))

    def tokens_per_s(self) -> float | None:
        """The speed now; None when there is nothing to measure."""
        now_s = self._clock()
        while self._arrivals and self._arrivals[0][0] < now_s - SPEED_WINDOW_S:
            self._arrivals.popleft()
        if len(self._arrivals) < 2:
            return None
        # The first arrival only starts the clock: its tokens were computed before it.
        span_s = self._arrivals[-1][0] - self._arrivals[0][0]
        tokens = sum(count for _, count in self._arrivals) - self._arrivals[0][1]
        return tokens / span_s if span_s > 0 else None

    def reset(self) -> None:
        """Forget everything."""
        self._arrivals.clear()


class StatusLine(QWidget):
    """Model, device, tokens/s, time to first token, running and waiting."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._meter = SpeedMeter()
        self._running = 0
        self._model = ElidedLabel("No model")
        self._device = QLabel()
        self._speed = _figure(
            "Tokens generated per second, all requests together, over the last 2 s; the last figure stays"
        )
        self._first = _figure("Time from sending the newest answered message to its first token")
        self._running_label = _figure("Requests that the engine computes in every step")
        self._waiting_label = _figure("Requests that wait for a slot or for KV blocks")
        self._device.setToolTip("Where the model runs")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(2, 0, 2, 4)
        layout.setSpacing(SPACE_PX)
        self._model.setMinimumWidth(80)
        layout.addWidget(self._model, 1)
        for label in (self._device, self._speed, self._first, self._running_label, self._waiting_label):
            label.setObjectName("secondary")
            layout.addWidget(label)
        self._refresh = QTimer(self, interval=REFRESH_MS)
        self._refresh.timeout.connect(self._show_speed)
        self._clear()

    @Slot(object)
    def on_status(self, status: EngineStatus) -> None:
        """The engine's state has changed."""
        info = status.info
        if info is not None:
            self._model.setText(f"{info.name} · {info.dtype}")
            _show(self._device, info.device)
            self._show_busy(0, 0)
            return
        texts = {EngineState.EMPTY: "No model", EngineState.LOADING: "Loading…", EngineState.FAILED: "No model: failed"}
        self._model.setText(texts.get(status.state, ""))
        _show(self._device, "")
        self._clear()

    @Slot(object)
    def on_load_progress(self, progress: LoadProgress) -> None:
        """Loading goes on."""
        self._model.setText(f"Loading… {progress.stage}, {progress.fraction:.0%}")

    @Slot(str, str, object)
    def on_text(self, _request_id: str, _text: str, token_ids: tuple[int, ...]) -> None:
        """Tokens have arrived."""
        self._meter.add(len(token_ids))
        if not self._refresh.isActive():
            self._refresh.start()

    @Slot(str, float)
    def on_first_token(self, _request_id: str, seconds: float) -> None:
        """An answer has begun."""
        self._show_first(seconds)

    @Slot(object)
    def on_finished(self, end: RequestFinished) -> None:
        """An answer has ended; alone in the engine, its own speed is the one that stays."""
        if end.ttft_s is not None:
            self._show_first(end.ttft_s)
        if end.tokens_per_s is not None and self._running <= 1:
            _show(self._speed, f"{end.tokens_per_s:.1f} tok/s")

    @Slot(object)
    def on_steps(self, steps: tuple[StepStats, ...]) -> None:
        """Steps were computed; they count what is left after their finishes."""
        self._running = steps[-1].running
        self._show_busy(steps[-1].running, steps[-1].waiting)

    @Slot()
    def on_idle(self) -> None:
        """Nothing is open any more; the last figures stay."""
        self._refresh.stop()
        self._meter.reset()
        self._running = 0
        self._show_busy(0, 0)

    def show_closing(self) -> None:
        """The program is on its way out."""
        self._model.setText("Closing…")

    @Slot()
    def _show_speed(self) -> None:
        speed = self._meter.tokens_per_s()
        if speed is not None:
            _show(self._speed, f"{speed:.1f} tok/s")

    def _show_first(self, seconds: float) -> None:
        _show(self._first, f"first token {seconds:.2f} s")

    def _show_busy(self, running: int, waiting: int) -> None:
        _show(self._running_label, f"{running} running")
        _show(self._waiting_label, f"{waiting} waiting")

    def _clear(self) -> None:
        self.on_idle()
        for figure in (self._speed, self._first, self._running_label, self._waiting_label):
            _show(figure, "")


def _show(label: QLabel, text: str) -> None:
    """A figure that is not known takes no room."""
    label.setText(text)
    label.setVisible(bool(text))


def _figure(tooltip: str) -> QLabel:
    label = QLabel()
    label.setToolTip(tooltip)
    label.setAccessibleDescription(tooltip)
    label.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
    return label
