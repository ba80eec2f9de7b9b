"""Plays a scenario in the window: all of its requests at once, as soon as its engine is ready. Knows no widget."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge.engine_client import EngineClient
from engine.events import EngineState, EngineStatus

if TYPE_CHECKING:
    from engine.trace.scenarios import Scenario


class ScenarioRun(QObject):
    """Submits once; what happens then is seen in the graphs.

    Signals:
        ended: every request of it has ended.
    """

    ended = Signal()

    def __init__(self, scenario: "Scenario", client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._waiting = {request.request_id: request for request in scenario.to_requests()}
        self._open: set[str] = set()
        client.status_changed.connect(self._on_status)
        client.request_finished.connect(self._on_end)
        client.request_failed.connect(self._on_end)

    @Slot(object)
    def _on_status(self, status: EngineStatus) -> None:
        if status.state is not EngineState.READY:
            return
        requests, self._waiting = tuple(self._waiting.values()), {}
        self._open = {request.request_id for request in requests}
        for request in requests:
            self._client.submit(request)

    @Slot(object)
    def _on_end(self, end: object) -> None:
        request_id = getattr(end, "request_id", "")
        if request_id in self._open:
            self._open.discard(request_id)
            if not self._open:
                self.ended.emit()
