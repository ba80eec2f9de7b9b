"""Is the system short of memory? A gate that the scheduler asks before another request starts.

On a CPU the pages of the cache are touched only when they are used: what was promised at the start can be gone when it
is needed, because other programs have grown. Then what runs goes on, and nobody new is let in.
"""

import logging
import time
from collections.abc import Callable

from engine.memory.measure import cpu_available_bytes
from engine.memory.units import bytes_text

log = logging.getLogger(__name__)

PERIOD_S = 1.0


class MemoryGate:
    """Closed while less than `floor_bytes` of system memory is available; looks at most once in `period_s`."""

    def __init__(
        self,
        *,
        floor_bytes: int,
        read_available_bytes: Callable[[], int] = cpu_available_bytes,
        clock: Callable[[], float] = time.monotonic,
        period_s: float = PERIOD_S,
    ) -> None:
        self.floor_bytes = floor_bytes
        self._read_available_bytes = read_available_bytes
        self._clock = clock
        self._period_s = period_s
        self._due_s = float("-inf")
        self._is_open = True

    def is_open(self) -> bool:
        """Whether there is memory for one more request."""
        now_s = self._clock()
        if now_s >= self._due_s:
            self._due_s = now_s + self._period_s
            self._look()
        return self._is_open

    def _look(self) -> None:
        available_bytes = self._read_available_bytes()
        was_open, self._is_open = self._is_open, available_bytes >= self.floor_bytes
        if was_open and not self._is_open:
            log.warning(
                "%s of system memory are available, below the %s that are left alone: new requests wait",
                bytes_text(available_bytes),
                bytes_text(self.floor_bytes),
            )
