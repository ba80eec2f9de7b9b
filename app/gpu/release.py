"""Ending processes and looking whether their memory comes back: a state machine that somebody else drives.

Order: pin by pidfd, compare the identity, ask `protect`, signal through the pidfd, wait, measure. SIGTERM comes
first; SIGKILL only by `kill`, which needs its own consent. Never blocks but in `wait` and `run_release`.
"""

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from types import TracebackType

from app.gpu.errors import ProbeError
from app.gpu.journal import JournalEntry, ReleaseJournal
from app.gpu.pin import Pin, exited
from app.gpu.probe import MemoryProbe
from app.gpu.processes import ProcessEntry, ProcessReader, ProcessTable
from app.gpu.protect import protection_of
from app.gpu.record import ProcessIdentity, ProcessMemory, ReleaseReport, StopOutcome, StopResult

_MIB = 1 << 20
_ENDED = (StopOutcome.EXITED, StopOutcome.KILLED)
_KEEPS_RUNNING = (StopOutcome.WAITING, StopOutcome.STILL_RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseTimes:
    """How patient a release is.

    Attributes:
        grace_s: from SIGTERM until a process counts as not exiting.
        kill_wait_s: the same after SIGKILL.
        measure_s: from the last exit, how long memory may take to come back.
        settle_s: from the last exit, how long we look at least, so as to see a process started again.
        look_period_s: between two looks at the memory and at the processes.
        enough_fraction: of the promised bytes.
    """

    grace_s: float = 10.0
    kill_wait_s: float = 5.0
    measure_s: float = 10.0
    settle_s: float = 1.0
    look_period_s: float = 0.25
    enough_fraction: float = 0.9


class _Phase(Enum):
    NEW = auto()
    ENDING = auto()
    MEASURING = auto()
    FINISHED = auto()


@dataclass(slots=True)
class _Target:
    """One process of a release on its way."""

    memory: ProcessMemory
    outcome: StopOutcome = StopOutcome.WAITING
    reason: str = ""
    pin: Pin | None = None
    seen: ProcessEntry | None = None
    means: signal.Signals | None = None
    journaled: set[tuple[signal.Signals, StopOutcome]] = field(default_factory=set)

    @property
    def identity(self) -> ProcessIdentity:
        return self.memory.identity

    def settle(self, outcome: StopOutcome, reason: str = "") -> None:
        self.outcome = outcome
        self.reason = reason

    def take_hold(self) -> None:
        try:
            self.pin = Pin(self.identity.pid)
        except ProcessLookupError:
            self.settle(StopOutcome.ALREADY_GONE)
        except (OSError, AttributeError) as error:
            self.settle(StopOutcome.REFUSED, f"this system cannot hold on to the process ({error})")

    def note_gone(self) -> None:
        self.settle(StopOutcome.ALREADY_GONE if self.means is None else StopOutcome.EXITED)

    def let_go(self) -> None:
        if self.pin is not None:
            self.pin.close()
            self.pin = None

    def result(self) -> StopResult:
        return StopResult(
            identity=self.identity,
            name=self.memory.name,
            outcome=self.outcome,
            promised_bytes=self.memory.memory_bytes or 0,
            reason=self.reason,
        )


class Release:
    """Ends `targets` and measures on `probe` what comes back.

    Call `start` once, then `poll` as often as you like until the report is finished; where processes did not
    exit, `kill` them after a second consent and poll on. Close it in the end: it holds pidfds.
    """

    def __init__(
        self,
        targets: Sequence[ProcessMemory],
        probe: MemoryProbe,
        *,
        read_table: Callable[[], ProcessTable] | None = None,
        journal: ReleaseJournal | None = None,
        times: ReleaseTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing happens yet.

        Args:
            targets: who shall end; each must have been chosen by the user.
            probe: the device whose memory is to come back.
            read_table: who runs now; a fresh look at /proc unless given, since a cached command line may be stale.
            journal: where actions are written down, if anywhere.
            times: how patient to be.
            clock: seconds that only grow.
        """
        self._targets = [_Target(memory) for memory in {target.identity: target for target in targets}.values()]
        self._probe = probe
        self._read_table = _look_afresh if read_table is None else read_table
        self._journal = journal
        self._times = ReleaseTimes() if times is None else times
        self._clock = clock
        self._phase = _Phase.NEW
        self._known_before: frozenset[ProcessIdentity] = frozenset()
        self._free_before_bytes = 0
        self._free_after_bytes = 0
        self._signalled_at_s = 0.0
        self._deadline_s = self._times.grace_s
        self._last_exit_s = 0.0
        self._last_look_s = 0.0
        self._elapsed_s = 0.0
        self._notes: dict[str, str] = {}

    def __enter__(self) -> "Release":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> ReleaseReport:
        """Send SIGTERM to all who may be ended.

        Raises:
            ProbeError: the memory cannot be measured; then nothing was signalled.
        """
        assert self._phase is _Phase.NEW, "a release starts once"
        self._free_before_bytes = self._free_after_bytes = self._probe.sample().free_bytes
        for target in self._targets:
            target.take_hold()
        table = self._read_table()
        self._known_before = frozenset(entry.identity for entry in table)
        return self._signal(self._targets, signal.SIGTERM, table)

    def kill(self, identities: Iterable[ProcessIdentity]) -> ReleaseReport:
        """Send SIGKILL to those of the targets that are still running. Only after the user's second consent."""
        assert self._phase is not _Phase.NEW, "SIGTERM comes first"
        self._collect()
        chosen = frozenset(identities)
        running = [t for t in self._targets if t.outcome in _KEEPS_RUNNING and t.identity in chosen]
        return self._signal(running, signal.SIGKILL, self._read_table())

    def poll(self) -> ReleaseReport:
        """Look once, without waiting, and say how far it is."""
        self._collect()
        if self._phase is _Phase.ENDING and self._wait_is_over():
            self._phase = _Phase.MEASURING
        if self._phase is _Phase.MEASURING:
            self._measure()
        return self._report()

    def wait(self, timeout_s: float) -> None:
        """Block until one of the processes exits, or for `timeout_s`. Not for a thread with other work."""
        exited([t.pin for t in self._running() if t.pin is not None], timeout_s=timeout_s)

    def close(self) -> None:
        """Let go of all processes; what was signalled is written down. Idempotent."""
        self._write_journal()
        for target in self._targets:
            target.let_go()

    def _signal(self, targets: Iterable[_Target], signal_number: signal.Signals, table: ProcessTable) -> ReleaseReport:
        for target in targets:
            if target.outcome in _KEEPS_RUNNING:
                _send(target, signal_number, table)
        self._phase = _Phase.ENDING
        self._signalled_at_s = self._last_exit_s = self._clock()
        self._deadline_s = self._times.kill_wait_s if signal_number == signal.SIGKILL else self._times.grace_s
        self._last_look_s = self._signalled_at_s
        return self.poll()

    def _running(self) -> list[_Target]:
        return [target for target in self._targets if target.outcome in _KEEPS_RUNNING and target.pin is not None]

    def _collect(self) -> None:
        """Note who has exited since the last look."""
        by_pin = {target.pin: target for target in self._running() if target.pin is not None}
        for pin in exited(by_pin, timeout_s=0):
            target = by_pin[pin]
            target.settle(StopOutcome.KILLED if target.means == signal.SIGKILL else StopOutcome.EXITED)
            self._last_exit_s = self._clock()
            if self._phase is _Phase.FINISHED:
                self._phase = _Phase.MEASURING

    def _wait_is_over(self) -> bool:
        waiting = [target for target in self._targets if target.outcome is StopOutcome.WAITING]
        if waiting and self._since(self._signalled_at_s) < self._deadline_s:
            return False
        if waiting:
            table = self._read_table()
            for target in waiting:
                target.settle(StopOutcome.STILL_RUNNING, _why_running(target, table))
        return True

    def _measure(self) -> None:
        ended = [target for target in self._targets if target.outcome in _ENDED]
        if not ended:
            self._finish()
        elif self._since(self._last_look_s) >= self._times.look_period_s:
            self._look(ended)
            waited_s = self._since(self._last_exit_s)
            if waited_s >= self._times.measure_s or (waited_s >= self._times.settle_s and self._is_enough()):
                self._finish()

    def _look(self, ended: Iterable[_Target]) -> None:
        self._last_look_s = self._clock()
        table = self._read_table()
        for target in ended:
            target.reason = self._started_again(target, table) or target.reason
        try:
            self._free_after_bytes = self._probe.sample().free_bytes
            self._notes.pop("probe", None)
        except ProbeError as error:
            self._notes["probe"] = str(error)

    def _started_again(self, ended: _Target, table: ProcessTable) -> str:
        """A sentence when the same parent runs the same command line anew."""
        seen = ended.seen
        if seen is None or not seen.command:
            return ""
        for entry in table:
            is_new = entry.identity not in self._known_before
            if is_new and (entry.parent_pid, entry.command) == (seen.parent_pid, seen.command):
                return f"came back as PID {entry.pid}: {_manager(entry, table)} starts it again, so stop that first"
        return ""

    def _is_enough(self) -> bool:
        return self._returned_bytes() >= self._times.enough_fraction * self._promised_bytes()

    def _finish(self) -> None:
        self._phase = _Phase.FINISHED
        self._elapsed_s = self._since(self._signalled_at_s)
        self._notes.pop("shortfall", None)
        if not self._is_enough():
            self._notes["shortfall"] = (
                f"Only {self._returned_bytes() / _MIB:,.0f} of the promised {self._promised_bytes() / _MIB:,.0f} MiB "
                "came back: others took some meanwhile, or a part of it is still held."
            )
        self._write_journal()

    def _write_journal(self) -> None:
        if self._journal is None:
            return
        entries = [entry for target in self._targets for entry in self._journal_entries(target)]
        try:
            if entries:
                self._journal.append(entries)
        except OSError as error:
            self._notes["journal"] = f"The journal {self._journal.path} could not be written ({error.strerror})."

    def _journal_entries(self, target: _Target) -> Iterable[JournalEntry]:
        if target.means is None or (target.means, target.outcome) in target.journaled:
            return
        target.journaled.add((target.means, target.outcome))
        yield JournalEntry(
            time=datetime.now(UTC),
            process=target.memory,
            means=target.means.name,
            outcome=target.outcome,
            reason=target.reason,
            free_before_bytes=self._free_before_bytes,
            free_after_bytes=self._free_after_bytes,
        )

    def _since(self, moment_s: float) -> float:
        return self._clock() - moment_s

    def _returned_bytes(self) -> int:
        return max(self._free_after_bytes - self._free_before_bytes, 0)

    def _promised_bytes(self) -> int:
        counted = (*_ENDED, StopOutcome.WAITING)
        return sum(target.memory.memory_bytes or 0 for target in self._targets if target.outcome in counted)

    def _report(self) -> ReleaseReport:
        finished = self._phase is _Phase.FINISHED
        return ReleaseReport(
            results=tuple(target.result() for target in self._targets),
            elapsed_s=self._elapsed_s if finished else self._since(self._signalled_at_s),
            deadline_s=self._deadline_s,
            free_before_bytes=self._free_before_bytes,
            free_after_bytes=self._free_after_bytes,
            returned_bytes=self._returned_bytes(),
            promised_bytes=self._promised_bytes(),
            finished=finished,
            note=" ".join(self._notes.values()),
        )


def _look_afresh() -> ProcessTable:
    return ProcessReader().read()


def _send(target: _Target, signal_number: signal.Signals, table: ProcessTable) -> None:
    """Signal one pinned process, if it is still the one that was chosen and may be ended.

    `table` was read after the pin was made: if the chosen identity is in it, the pin holds that very process.
    """
    assert target.pin is not None
    entry = table.find(target.identity)
    other = table.entries.get(target.identity.pid)
    if target.pin.has_exited or (entry is None and other is None):
        target.note_gone()
    elif entry is None:
        assert other is not None
        target.settle(StopOutcome.REFUSED, f"it is gone, and its PID now belongs to another process ({other.name})")
    elif reason := protection_of(entry, table):
        target.settle(StopOutcome.REFUSED, f"it is {reason}")
    else:
        target.seen = entry
        _send_to(target, target.pin, signal_number)


def _send_to(target: _Target, pin: Pin, signal_number: signal.Signals) -> None:
    try:
        pin.send(signal_number)
    except ProcessLookupError:
        target.note_gone()
    except PermissionError:
        target.settle(StopOutcome.REFUSED, "the system does not let this user end it")
    else:
        target.means = signal_number
        target.settle(StopOutcome.WAITING)


def _why_running(target: _Target, table: ProcessTable) -> str:
    entry = table.find(target.identity)
    state = entry.state if entry is not None else ""
    if state == "D":
        return "it waits inside the kernel (state D) and cannot end before that returns"
    if target.means == signal.SIGKILL:
        return f"not even SIGKILL ended it (state {state}): the kernel does not let it go; a restart may be needed"
    if state in ("T", "t"):
        return "it is stopped and takes the signal only when it goes on"
    return "it ignores SIGTERM or needs longer"


def _manager(entry: ProcessEntry, table: ProcessTable) -> str:
    parent = table.entries.get(entry.parent_pid)
    return f"its parent {parent.name} (PID {parent.pid})" if parent is not None else f"PID {entry.parent_pid}"


def run_release(
    release: Release,
    *,
    may_kill: Callable[[ReleaseReport], bool],
    on_report: Callable[[ReleaseReport], None] | None = None,
    poll_period_s: float = 0.1,
) -> ReleaseReport:
    """Drive a release to its end, blocking: for the command line.

    Args:
        release: not started yet; the caller closes it.
        may_kill: the second consent, asked once if processes did not exit.
        on_report: told after every look.
        poll_period_s: the longest time between two looks.
    """
    report = _run_stage(release, release.start(), on_report, poll_period_s)
    running = [result.identity for result in report.results if result.outcome is StopOutcome.STILL_RUNNING]
    if running and may_kill(report):
        report = _run_stage(release, release.kill(running), on_report, poll_period_s)
    return report


def _run_stage(
    release: Release,
    report: ReleaseReport,
    on_report: Callable[[ReleaseReport], None] | None,
    poll_period_s: float,
) -> ReleaseReport:
    while not report.finished:
        if on_report is not None:
            on_report(report)
        release.wait(poll_period_s)
        report = release.poll()
    return report
