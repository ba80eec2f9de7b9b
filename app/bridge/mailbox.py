"""Where the engine thread leaves its events. Knows neither Qt nor what the events mean."""

from collections.abc import Callable
from threading import Lock

from engine.events import EngineEvent


class Mailbox:
    """Takes events from one thread and hands them to another, in order, without ever blocking for long.

    Args:
        wake: called, in the appending thread, only when the box was empty: once per drain, however many events come.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = Lock()
        self._events: list[EngineEvent] = []

    def append(self, event: EngineEvent) -> None:
        """Leave an event. Any thread."""
        with self._lock:
            was_empty = not self._events
            self._events.append(event)
        if was_empty:
            self._wake()

    def drain(self) -> list[EngineEvent]:
        """Take everything that has arrived, oldest first."""
        with self._lock:
            events, self._events = self._events, []
        return events
