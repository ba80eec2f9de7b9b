"""What the chat needs of the engine's client: a protocol, so that tests can stand in for the engine."""

from typing import Protocol

from PySide6.QtCore import SignalInstance

from engine.events import EngineStatus
from engine.requests import Request


class EngineClientLike(Protocol):
    """What the chat needs of `app.bridge.engine_client.EngineClient`."""

    @property
    def status_changed(self) -> SignalInstance:
        """Carries an EngineStatus."""

    @property
    def text_arrived(self) -> SignalInstance:
        """Carries request id, text and the ids of its tokens."""

    @property
    def request_finished(self) -> SignalInstance:
        """Carries a RequestFinished."""

    @property
    def request_failed(self) -> SignalInstance:
        """Carries a RequestFailed."""

    @property
    def status(self) -> EngineStatus:
        """The last state that was signalled."""

    def submit(self, request: Request) -> None:
        """Ask for an answer."""

    def cancel(self, request_id: str) -> None:
        """End a request."""
