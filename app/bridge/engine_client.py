"""The window's side of the engine: commands go in by methods, what happened comes out as signals of the GUI thread.

The only door to the engine thread. It merges what arrives between two frames, so that a fast engine costs the window
one repaint per frame, not one per step. It knows no widget.
"""

import time

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from app.bridge.engine_thread import EngineThread
from app.bridge.mailbox import Mailbox
from app.bridge.merge import FrameEvent, MergedSteps, MergedText, merge
from engine.commands import Cancel, Command, LoadModel, Stop, Submit, UnloadModel, Watch
from engine.config import EngineConfig
from engine.events import (
    BlockMap,
    EngineState,
    EngineStatus,
    LoadProgress,
    RequestFailed,
    RequestFinished,
)
from engine.loop import EngineFactory
from engine.requests import Request

FRAME_MS = 66  # text that comes 15 times a second reads as a flow; each frame costs the window some milliseconds
DEATH_MESSAGE = "The engine's thread ended unexpectedly. Load the model again to go on."
CLOSING_MESSAGE = "KVScope is closing and takes no more requests."


class EngineClient(QObject):
    """Speaks to the engine thread, and starts one when there is none.

    Signals:
        status_changed: the engine's state, and what is loaded.
        load_progressed: how far loading has come.
        text_arrived: request id, text, ids of its tokens; all of a frame in one. Always before the request's end.
        first_token_arrived: request id, seconds since it was submitted.
        request_finished, request_failed: the end of a request; exactly one of them, once.
        steps_arrived: the steps of a frame, oldest first.
        block_map_arrived: the newest map, only while watched.
        idled: the last open request has ended, and everything about it was signalled.
        stopped: the thread has ended after `stop`.
    """

    status_changed = Signal(object)  # EngineStatus
    load_progressed = Signal(object)  # LoadProgress
    text_arrived = Signal(str, str, object)  # tuple[int, ...]
    first_token_arrived = Signal(str, float)
    request_finished = Signal(object)  # RequestFinished
    request_failed = Signal(object)  # RequestFailed
    steps_arrived = Signal(object)  # tuple[StepStats, ...]
    block_map_arrived = Signal(object)  # BlockMap
    idled = Signal()
    stopped = Signal()
    _woken = Signal()

    def __init__(self, parent: QObject | None = None, *, load_engine: EngineFactory | None = None) -> None:
        super().__init__(parent)
        self._load_engine = load_engine
        self._mailbox = Mailbox(self._woken.emit)
        self._thread: EngineThread | None = None
        self._status = EngineStatus(EngineState.EMPTY)
        self._open: set[str] = set()
        self._submitted_s: dict[str, float] = {}  # without a first token yet
        self._watched = False
        self._stopping = False
        self._drained_s = -1.0
        self._frame = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._frame.timeout.connect(self._drain)
        # Queued even from the GUI thread: nothing is ever emitted inside a caller's own call.
        self._woken.connect(self._on_woken, Qt.ConnectionType.QueuedConnection)

    @property
    def status(self) -> EngineStatus:
        """The last state that was signalled."""
        return self._status

    @property
    def is_running(self) -> bool:
        """Whether there is an engine thread that has not ended."""
        return self._thread is not None

    @property
    def open_requests(self) -> frozenset[str]:
        """Requests that were submitted and have not ended."""
        return frozenset(self._open)

    def load_model(self, config: EngineConfig) -> None:
        """Load a model; one that is loaded or being loaded is given up first."""
        self._post(LoadModel(config))

    def unload_model(self) -> None:
        """Give the model's memory back, or give up loading."""
        if self._thread is not None:
            self._post(UnloadModel())

    def submit(self, request: Request) -> None:
        """Ask for an answer."""
        self._open.add(request.request_id)
        self._submitted_s[request.request_id] = time.monotonic()
        if self._stopping:
            self._mailbox.append(RequestFailed(request.request_id, CLOSING_MESSAGE))
        else:
            self._post(Submit(request))

    def cancel(self, request_id: str) -> None:
        """End a request; unknown ids and repetitions are ignored."""
        if self._thread is not None:
            self._post(Cancel(request_id))

    def set_watched(self, enabled: bool) -> None:
        """Whether somebody looks at the batch: then steps carry rows, and block maps are sent."""
        self._watched = enabled
        if self._thread is not None:
            self._post(Watch(enabled))

    def stop(self) -> None:
        """Cancel everything and end the thread; `stopped` follows, at once if there is none. Only once for good."""
        first, self._stopping = not self._stopping, True
        if self._thread is not None:
            self._thread.commands.put(Stop())
        elif first:
            QTimer.singleShot(0, self, self.stopped.emit)

    def _post(self, command: Command) -> None:
        if self._thread is not None and self._thread.isFinished():
            self._on_thread_finished()
        if self._stopping:
            return
        if self._thread is None:
            self._thread = self._start_thread()
        self._thread.commands.put(command)

    def _start_thread(self) -> EngineThread:
        thread = EngineThread(self._mailbox.append, self._load_engine, self)
        thread.finished.connect(self._on_thread_finished)
        thread.commands.put(Watch(self._watched))
        thread.start()
        return thread

    @Slot()
    def _on_thread_finished(self) -> None:
        thread = self._thread
        if thread is None or not thread.isFinished():
            return  # seen already, or a signal of an earlier thread
        self._thread = None
        thread.wait()
        self._drain()
        if not self._stopping:
            self._report_death(thread.death)
        thread.deleteLater()
        if self._stopping:
            self._fail_open_requests(CLOSING_MESSAGE)
            self.stopped.emit()

    def _report_death(self, details: str) -> None:
        self._fail_open_requests(DEATH_MESSAGE)
        self._set_status(EngineStatus(EngineState.FAILED, message=DEATH_MESSAGE, details=details))

    def _fail_open_requests(self, message: str) -> None:
        for request_id in sorted(self._open):
            self._end_request(RequestFailed(request_id, message))

    @Slot()
    def _on_woken(self) -> None:
        if self._frame.isActive():
            return
        since_ms = (time.monotonic() - self._drained_s) * 1000
        self._frame.start(max(0, round(FRAME_MS - since_ms)))

    @Slot()
    def _drain(self) -> None:
        self._frame.stop()
        self._drained_s = time.monotonic()
        was_busy = bool(self._open)
        for event in merge(self._mailbox.drain()):
            self._deliver(event)
        if was_busy and not self._open:
            self.idled.emit()

    def _deliver(self, event: FrameEvent) -> None:
        match event:
            case MergedText(request_id, text, token_ids):
                self._note_first_token(request_id)
                self.text_arrived.emit(request_id, text, token_ids)
            case MergedSteps(steps):
                self.steps_arrived.emit(steps)
            case RequestFinished() | RequestFailed():
                self._end_request(event)
            case EngineStatus():
                self._set_status(event)
            case LoadProgress():
                self.load_progressed.emit(event)
            case BlockMap():
                self.block_map_arrived.emit(event)

    def _note_first_token(self, request_id: str) -> None:
        submitted_s = self._submitted_s.pop(request_id, None)
        if submitted_s is not None:
            self.first_token_arrived.emit(request_id, time.monotonic() - submitted_s)

    def _set_status(self, status: EngineStatus) -> None:
        self._status = status
        self.status_changed.emit(status)

    def _end_request(self, end: RequestFinished | RequestFailed) -> None:
        self._open.discard(end.request_id)
        self._submitted_s.pop(end.request_id, None)
        if isinstance(end, RequestFinished):
            self.request_finished.emit(end)
        else:
            self.request_failed.emit(end)
