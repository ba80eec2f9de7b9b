"""A process held by a pidfd: whoever takes its PID later is never meant. Knows no reasons and no memory.

A pidfd turns readable when the process has exited, before its parent collects it (pidfd_open(2)).
"""

import os
import select
import signal
from collections.abc import Iterable


class Pin:
    """One process, for as long as the pin is open."""

    def __init__(self, pid: int) -> None:
        """Hold whoever has this PID now.

        Raises:
            ProcessLookupError: nobody has it.
            OSError: the PID is a thread's, or the kernel knows no pidfds.
        """
        self._fd = os.pidfd_open(pid)

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended; it may still be listed, uncollected."""
        return self in exited([self], timeout_s=0)

    def send(self, signal_number: signal.Signals) -> None:
        """Signal it. Raises ProcessLookupError when it is gone, PermissionError when it is not ours."""
        signal.pidfd_send_signal(self._fd, signal_number)

    def fileno(self) -> int:
        """The pidfd."""
        return self._fd

    def close(self) -> None:
        """Let go. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def exited(pins: Iterable[Pin], *, timeout_s: float) -> list[Pin]:
    """Those that have ended; waits up to `timeout_s` until one of them does."""
    by_fd = {pin.fileno(): pin for pin in pins}
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(timeout_s * 1000)]
