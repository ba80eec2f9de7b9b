"""May another sequence start? The scheduler asks; what the answer depends on is not its business."""

from typing import Protocol


class AdmissionGate(Protocol):
    """Something outside the engine that can ask for patience, such as a system that runs out of memory."""

    def is_open(self) -> bool:
        """Whether one more sequence may start now. Asked in every step in which one could, so it has to be cheap."""


class OpenGate:
    """Nothing outside stands in the way."""

    def is_open(self) -> bool:
        """Always."""
        return True
