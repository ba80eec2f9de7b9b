"""How often something may happen."""

from collections.abc import Callable

_EARLY_S = 0.03  # timers fire a little early or late


class Rhythm:
    """Says yes at most once in each period."""

    def __init__(self, period_s: float, clock: Callable[[], float]) -> None:
        self._period_s = period_s
        self._clock = clock
        self._due_s = -float("inf")

    def take_turn(self) -> bool:
        """Whether it may happen now; a yes starts the next period."""
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._period_s - _EARLY_S
        return True
