"""What every way of fetching a model has in common: progress, cancelling, and how it fails. No Qt, no torch."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far fetching has come. `total_bytes` is 0 while it is unknown."""

    stage: str
    done_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[FetchProgress], None]
"""Called in the fetching thread."""

Cancelled = Callable[[], bool]
"""Asked about ten times a second, in the fetching thread."""


class FetchError(EngineError):
    """A model could not be fetched. `reason` is a half sentence: what went wrong."""

    def __init__(self, what: str, reason: str, advice: str, details: str = "") -> None:
        super().__init__(f"{what} could not be downloaded: {reason}. {advice}")
        self.details = details


class FetchCancelledError(EngineError):
    """Fetching was stopped by the user."""

    def __init__(self) -> None:
        super().__init__("The download was cancelled.")
