"""Ending processes and looking whether their memory comes back: a state machine that somebody else drives.

Order: pin by pidfd, compare the identity, ask `protect`, signal through the pidfd, wait, measure. SIGTERM comes
first; SIGKILL only by `kill`, which needs its own consent. Never blocks but in `wait` and `run_release`.
"""

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from types import TracebackType

from app.gpu.errors import ProbeError
from app.gpu.journal import JournalEntry, JournalKeeper, ReleaseJournal
from app.gpu.probe import MemoryProbe
from app.gpu.process_table import ProcessTable
from app.gpu.processes import ProcessReader
from app.gpu.record import ProcessIdentity, ProcessMemory, ReleaseReport, StopOutcome
from app.gpu.recovery import Recovery
from app.gpu.target import Target, exited_targets

_MIB = 1 << 20


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
        noise_bytes: what may be missing of a small promise: a system's own coming and going hides less than this.
    """

    grace_s: float = 10.0
    kill_wait_s: float = 5.0
    measure_s: float = 10.0
    settle_s: float = 1.0
    look_period_s: float = 0.25
    enough_fraction: float = 0.9
    noise_bytes: int = 8 << 20


class _Phase(Enum):
    NEW = auto()
    ENDING = auto()
    MEASURING = auto()
    FINISHED = auto()


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
            targets: who shall end; each was chosen by the user.
            probe: the device whose memory is to come back.
            read_table: who runs now; a fresh look at /proc unless given, since a cached command line may be stale.
            journal: where actions are written down, if anywhere.
            times: how patient to be.
            clock: seconds that only grow.
        """
        self._targets = [Target(memory) for memory in {target.identity: target for target in targets}.values()]
        self._probe = probe
        self._read_table = _look_afresh if read_table is None else read_table
        self._journal = JournalKeeper(journal)
        self._times = ReleaseTimes() if times is None else times
        self._clock = clock
        self._phase = _Phase.NEW
        self._deadline_s = self._times.grace_s
        self._signalled_at_s = self._last_exit_s = self._last_look_s = self._finished_at_s = 0.0
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
        self._recovery = Recovery(self._probe.sample(), [target.identity for target in self._targets])
        for target in self._targets:
            target.hold()
        table = self._read_table()
        self._known_before = frozenset(entry.identity for entry in table)
        return self._signal(self._targets, signal.SIGTERM, table)

    def kill(self, identities: Iterable[ProcessIdentity]) -> ReleaseReport:
        """Send SIGKILL to those of the targets that are still running. Only after the user's second consent."""
        assert self._phase is not _Phase.NEW, "SIGTERM comes first"
        self._collect()
        chosen = frozenset(identities)
        return self._signal([t for t in self._targets if t.identity in chosen], signal.SIGKILL, self._read_table())

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
        exited_targets(self._targets, timeout_s=timeout_s)

    def close(self) -> None:
        """Let go of all processes; what was signalled is written down. Idempotent."""
        self._write_journal()
        for target in self._targets:
            target.let_go()

    def _signal(self, targets: Iterable[Target], means: signal.Signals, table: ProcessTable) -> ReleaseReport:
        for target in targets:
            if target.is_running:
                target.send(means, table)
        self._phase = _Phase.ENDING
        self._deadline_s = self._times.kill_wait_s if means is signal.SIGKILL else self._times.grace_s
        self._signalled_at_s = self._last_exit_s = self._last_look_s = self._clock()
        return self.poll()

    def _collect(self) -> None:
        """Note who has exited since the last look, however late."""
        for target in exited_targets(self._targets, timeout_s=0):
            target.note_exit()
            self._last_exit_s = self._clock()
            if self._phase is _Phase.FINISHED:
                self._phase = _Phase.MEASURING

    def _wait_is_over(self) -> bool:
        waiting = [target for target in self._targets if target.outcome is StopOutcome.WAITING]
        if waiting and self._since(self._signalled_at_s) < self._deadline_s:
            return False
        table = self._read_table() if waiting else None
        for target in waiting:
            assert table is not None
            target.note_still_running(table)
        return True

    def _measure(self) -> None:
        if not any(target.has_ended for target in self._targets):
            self._finish()
        elif self._since(self._last_look_s) >= self._times.look_period_s:
            self._look()
            waited_s = self._since(self._last_exit_s)
            if waited_s >= self._times.measure_s or (waited_s >= self._times.settle_s and self._is_enough()):
                self._finish()

    def _look(self) -> None:
        self._last_look_s = self._clock()
        started_again = self._started_again(self._read_table())
        try:
            self._recovery.see(self._probe.sample(), started_again=started_again)
            self._notes.pop("probe", None)
        except ProbeError as error:
            self._notes["probe"] = str(error)

    def _started_again(self, table: ProcessTable) -> list[ProcessIdentity]:
        found = []
        for target in self._targets:
            if successor := target.started_again(table, self._known_before):
                target.note_started_again(successor, table)
                found.append(successor.identity)
        return found

    def _promised_bytes(self) -> int:
        return sum(t.promised_bytes for t in self._targets if t.has_ended or t.outcome is StopOutcome.WAITING)

    def _is_enough(self) -> bool:
        promised_bytes = self._promised_bytes()
        slack_bytes = max((1 - self._times.enough_fraction) * promised_bytes, self._times.noise_bytes)
        return self._recovery.returned_bytes >= promised_bytes - slack_bytes

    def _finish(self) -> None:
        self._phase = _Phase.FINISHED
        self._finished_at_s = self._clock()
        self._notes.pop("shortfall", None)
        if not self._is_enough():
            self._notes["shortfall"] = _shortfall(self._recovery.returned_bytes, self._promised_bytes())
        self._write_journal()

    def _write_journal(self) -> None:
        entries = [self._journal_entry(target, target.means) for target in self._targets if target.means is not None]
        if problem := self._journal.write(entries):
            self._notes["journal"] = problem

    def _journal_entry(self, target: Target, means: signal.Signals) -> JournalEntry:
        return JournalEntry(
            time=datetime.now(UTC),
            process=target.memory,
            means=means.name,
            outcome=target.outcome,
            reason=target.reason,
            free_before_bytes=self._recovery.free_before_bytes,
            free_after_bytes=self._recovery.free_after_bytes,
        )

    def _since(self, moment_s: float) -> float:
        return self._clock() - moment_s

    def _report(self) -> ReleaseReport:
        finished = self._phase is _Phase.FINISHED
        return ReleaseReport(
            results=tuple(target.result() for target in self._targets),
            elapsed_s=(self._finished_at_s if finished else self._clock()) - self._signalled_at_s,
            deadline_s=self._deadline_s,
            free_before_bytes=self._recovery.free_before_bytes,
            free_after_bytes=self._recovery.free_after_bytes,
            returned_bytes=self._recovery.returned_bytes,
            promised_bytes=self._promised_bytes(),
            finished=finished,
            note=" ".join(self._notes.values()),
        )


def _look_afresh() -> ProcessTable:
    return ProcessReader().read()


def _shortfall(returned_bytes: int, promised_bytes: int) -> str:
    return (
        f"Only {returned_bytes / _MIB:,.0f} of the promised {promised_bytes / _MIB:,.0f} MiB came back; "
        "the rest is shared with others, started again, or still held by the system."
    )


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
