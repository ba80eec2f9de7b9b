"""One process of a release: pinned, compared, asked to end, watched. Knows no memory but what was promised.

The only place that sends a signal to somebody else's process.
"""

import signal
from collections.abc import Collection, Iterable

from app.gpu.pin import Pin, exited
from app.gpu.process_table import ProcessEntry, ProcessTable
from app.gpu.protect import protection_of
from app.gpu.record import ProcessIdentity, ProcessMemory, StopOutcome, StopResult


class Target:
    """A process that the user chose, on its way out.

    Attributes:
        means: the last signal that was sent to it.
        pin: held from `hold` to `let_go`.
    """

    def __init__(self, memory: ProcessMemory) -> None:
        """Nothing happens yet."""
        self.memory = memory
        self.outcome = StopOutcome.WAITING
        self.reason = ""
        self.means: signal.Signals | None = None
        self.pin: Pin | None = None
        self._seen: ProcessEntry | None = None

    @property
    def identity(self) -> ProcessIdentity:
        """Who it is."""
        return self.memory.identity

    @property
    def promised_bytes(self) -> int:
        """What it held when it was chosen; 0 where nobody knows."""
        return self.memory.memory_bytes or 0

    @property
    def is_running(self) -> bool:
        """Whether it is still there, as far as the last look tells."""
        return self.pin is not None and self.outcome in (StopOutcome.WAITING, StopOutcome.STILL_RUNNING)

    @property
    def has_ended(self) -> bool:
        """Whether it was asked to end and did."""
        return self.outcome in (StopOutcome.EXITED, StopOutcome.KILLED)

    def hold(self) -> None:
        """Pin whoever has the PID now; `send` then compares. To be called before the table is read."""
        try:
            self.pin = Pin(self.identity.pid)
        except ProcessLookupError:
            self.outcome = StopOutcome.ALREADY_GONE
        except (OSError, AttributeError) as error:
            self._refuse(f"this system cannot hold on to it ({error})")

    def let_go(self) -> None:
        """Give the pin back. Idempotent."""
        if self.pin is not None:
            self.pin.close()
            self.pin = None

    def send(self, means: signal.Signals, table: ProcessTable) -> None:
        """Signal the process if it is the chosen one and may be ended.

        `table` was read after the pin was made: if the chosen identity is in it, the pin holds that very process.
        """
        assert self.pin is not None
        entry = table.find(self.identity)
        successor = table.entries.get(self.identity.pid)
        if self.pin.has_exited or (entry is None and successor is None):
            self._note_gone()
        elif entry is None:
            self._refuse(f"it is gone, and its PID now belongs to another process ({_name(successor)})")
        elif protection := protection_of(entry, table):
            self._refuse(f"it is {protection}")
        else:
            self._seen = entry
            self._send(self.pin, means)

    def _send(self, pin: Pin, means: signal.Signals) -> None:
        try:
            pin.send(means)
        except ProcessLookupError:
            self._note_gone()
        except PermissionError:
            self._refuse("the system does not let this user end it")
        else:
            self.means = means
            self.outcome = StopOutcome.WAITING
            self.reason = ""

    def note_exit(self) -> None:
        """The pin says that it has ended."""
        self.outcome = StopOutcome.KILLED if self.means is signal.SIGKILL else StopOutcome.EXITED
        self.reason = ""

    def note_still_running(self, table: ProcessTable) -> None:
        """The wait is over and it is still there."""
        self.outcome = StopOutcome.STILL_RUNNING
        self.reason = self._why_running(table.find(self.identity))

    def started_again(self, table: ProcessTable, known_before: Collection[ProcessIdentity]) -> ProcessEntry | None:
        """A process that the same parent started since, with the same command line."""
        seen = self._seen
        if not self.has_ended or seen is None or not seen.command:
            return None
        origin = (seen.parent_pid, seen.command)
        new = (entry for entry in table if entry.identity not in known_before)
        return next((entry for entry in new if (entry.parent_pid, entry.command) == origin), None)

    def note_started_again(self, successor: ProcessEntry, table: ProcessTable) -> None:
        """Ending it was in vain: say who brings it back."""
        parent = table.entries.get(successor.parent_pid)
        who = f"PID {successor.parent_pid} ({_name(parent)})"
        self.reason = f"it came back as PID {successor.pid}: its parent {who} starts it again, so stop that one first"

    def result(self) -> StopResult:
        """The value for the report."""
        return StopResult(
            identity=self.identity,
            name=self.memory.name,
            outcome=self.outcome,
            promised_bytes=self.promised_bytes,
            reason=self.reason,
        )

    def _refuse(self, reason: str) -> None:
        self.outcome = StopOutcome.REFUSED
        self.reason = reason

    def _note_gone(self) -> None:
        if self.means is None:
            self.outcome = StopOutcome.ALREADY_GONE
        else:
            self.note_exit()

    def _why_running(self, entry: ProcessEntry | None) -> str:
        state = "" if entry is None else entry.state
        if state == "D":
            return "it waits inside the kernel (state D) and cannot end before that returns"
        if self.means is signal.SIGKILL:
            return "not even SIGKILL ended it: the kernel does not let it go, a restart of the computer may be needed"
        if state in ("T", "t"):
            return "it is suspended and takes the signal only when it goes on"
        return "it ignores SIGTERM or needs longer"


def exited_targets(targets: Iterable[Target], *, timeout_s: float) -> list[Target]:
    """Those of the running ones that have ended; waits up to `timeout_s` until one of them does."""
    by_pin = {target.pin: target for target in targets if target.is_running and target.pin is not None}
    return [by_pin[pin] for pin in exited(by_pin, timeout_s=timeout_s)]


def _name(entry: ProcessEntry | None) -> str:
    return "not visible" if entry is None else entry.name
