"""Plays a scenario in the window, once, as soon as a model is ready. Knows no widget."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge.engine_client import EngineClient
from app.chat.controller import ChatController
from engine.events import EngineState, EngineStatus
from engine.requests import SamplingParams

if TYPE_CHECKING:
    from engine.trace.scenarios import Scenario

CHAT = "chat"
CHAT_PROMPTS = (
    "Write a Python function that reverses the words of a text, and explain it.",
    "Name three rivers of Europe and the seas they flow into.",
    "Explain in a few sentences what a cache is, for a reader who has never heard of it.",
)
CHAT_SAMPLING = SamplingParams(temperature=0.0, max_tokens=160)


class ScenarioRun(QObject):
    """All requests of an engine's scenario at once; what happens then is seen in the graphs.

    Signals:
        progressed: how many of its requests have ended.
        ended: every request of it has ended.
    """

    progressed = Signal(int)
    ended = Signal()

    def __init__(self, scenario: "Scenario", client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._waiting = {request.request_id: request for request in scenario.to_requests()}
        self._count = len(scenario.requests)
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
            self.progressed.emit(self._count - len(self._open))
            if not self._open:
                self.ended.emit()


class ChatRun(QObject):
    """The scenario "chat": several conversations at once, the first of them in view.

    Signals:
        ended: every one of them has ended.
    """

    ended = Signal()

    def __init__(self, chat: ChatController, client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat = chat
        self._client = client
        client.status_changed.connect(self._on_status)

    @Slot(object)
    def _on_status(self, status: EngineStatus) -> None:
        if status.state is not EngineState.READY:
            return
        self._client.status_changed.disconnect(self._on_status)
        self._client.idled.connect(self.ended)
        usual, self._chat.sampling = self._chat.sampling, CHAT_SAMPLING
        for prompt in reversed(CHAT_PROMPTS):
            self._chat.new_conversation()
            self._chat.send(prompt)
        self._chat.sampling = usual
