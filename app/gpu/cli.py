"""`kvscope ps` and `kvscope free`: the terminal's view of memory by process, and of ending processes.

Prints and asks; decides nothing. Without Qt and torch, so that it answers at once.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.gpu.errors import NoConsentError, NoSuchProcessError, ProtectedProcessError
from app.gpu.journal import ReleaseJournal
from app.gpu.present import (
    plan_json,
    plan_text,
    report_json,
    report_text,
    sample_json,
    sample_text,
    target_line,
)
from app.gpu.probe import MemoryProbe, open_probe
from app.gpu.process_table import ProcessTable
from app.gpu.processes import ProcessReader
from app.gpu.protect import described
from app.gpu.record import MemorySample, ProcessMemory, ReleaseReport, StopOutcome, StopResult
from app.gpu.release import Release, ReleaseTimes, run_release
from engine.errors import EngineError


def ps(*, as_json: bool) -> int:
    """Print who holds memory, largest first. Returns the exit code."""
    opened = open_probe()
    try:
        sample = opened.probe.sample()
    finally:
        opened.probe.close()
    print(json.dumps(sample_json(sample, opened.why), indent=2) if as_json else sample_text(sample, opened.why))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRequest:
    """What was asked on the command line.

    Attributes:
        dry_run: only say what would be done.
        yes: the consent to SIGTERM; without it the terminal is asked.
        kill: the second consent, to SIGKILL for those still there after the wait.
    """

    pids: tuple[int, ...]
    dry_run: bool = False
    yes: bool = False
    kill: bool = False
    as_json: bool = False

    @property
    def means(self) -> tuple[str, ...]:
        """The signals that this request may send."""
        return ("SIGTERM", "SIGKILL") if self.kill else ("SIGTERM",)


def free(request: FreeRequest, *, journal: ReleaseJournal, times: ReleaseTimes | None = None) -> int:
    """End the named processes and print what came back.

    Returns:
        The exit code: 0 all ended, 1 one did not exit, 3 one was refused at the last moment.

    Raises:
        RefusalError: a PID is nobody's or protected, or consent is missing; nothing was ended.
    """
    try:
        return _free(request, journal, times)
    except EngineError as error:
        if request.as_json:
            print(json.dumps({"error": str(error)}))
        raise


def _free(request: FreeRequest, journal: ReleaseJournal, times: ReleaseTimes | None) -> int:
    reader = ProcessReader()
    probe = open_probe(reader=reader).probe
    try:
        targets = chosen(request.pids, probe.sample(), reader.read())
        if request.dry_run:
            _print(plan_json(targets, request.means), plan_text(targets, request.means), request)
            return 0
        if not request.yes and not _agrees(_question(targets)):
            raise NoConsentError
        report = _run(request, targets, probe, journal, times)
    finally:
        probe.close()
    _print(report_json(report), report_text(report), request)
    _complain(report, request)
    return exit_code_of(report)


def chosen(pids: Sequence[int], sample: MemorySample, table: ProcessTable) -> list[ProcessMemory]:
    """The processes with these PIDs, all of them or none.

    Raises:
        NoSuchProcessError: a PID is nobody's.
        ProtectedProcessError: one of them must not be ended.
    """
    held = {process.identity.pid: process for process in sample.processes}
    targets = {pid: target for pid in pids if (target := _target(pid, held.get(pid), table)) is not None}
    if missing := [pid for pid in pids if pid not in targets]:
        raise NoSuchProcessError(missing)
    if protected := [target for target in targets.values() if target.protected_because]:
        raise ProtectedProcessError(protected)
    return list(targets.values())


def _target(pid: int, holder: ProcessMemory | None, table: ProcessTable) -> ProcessMemory | None:
    """Whoever has this PID now; it need not hold any of the device's memory."""
    entry = table.entries.get(pid)
    if entry is None:
        return holder
    return described(entry, table, holder.memory_bytes if holder and holder.identity == entry.identity else 0)


def _print(value: dict[str, object], text: str, request: FreeRequest) -> None:
    print(json.dumps(value, indent=2) if request.as_json else text)


def _question(targets: Sequence[ProcessMemory]) -> str:
    lines = "\n".join(f"  {target_line(target)}" for target in targets)
    return f"End these by SIGTERM? Unsaved work in them may be lost.\n{lines}\n[y/N] "


def _agrees(question: str) -> bool:
    """Whether somebody at the terminal says yes; nobody there is a no."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _run(
    request: FreeRequest,
    targets: Sequence[ProcessMemory],
    probe: MemoryProbe,
    journal: ReleaseJournal,
    times: ReleaseTimes | None,
) -> ReleaseReport:
    try:
        with Release(targets, probe, journal=journal, times=times) as release:
            return run_release(release, may_kill=_second_consent(request), on_report=_progress())
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _second_consent(request: FreeRequest) -> Callable[[ReleaseReport], bool]:
    def consent(report: ReleaseReport) -> bool:
        if request.kill or request.yes:
            return request.kill
        names = ", ".join(f"PID {result.identity.pid} ({result.name})" for result in _still_running(report))
        return _agrees(f"\nStill running: {names}. End by SIGKILL, without any chance to save? [y/N] ")

    return consent


def _progress() -> Callable[[ReleaseReport], None] | None:
    """A countdown, for whoever watches a terminal."""
    return _show_progress if sys.stderr.isatty() else None


def _show_progress(report: ReleaseReport) -> None:
    waiting = sum(result.outcome is StopOutcome.WAITING for result in report.results)
    left_s = max(report.deadline_s - report.elapsed_s, 0)
    text = f"waiting for {waiting} to exit, {left_s:.0f} s left" if waiting else "looking whether the memory is back"
    print(f"\r\033[K{text}…", end="", file=sys.stderr, flush=True)


def _still_running(report: ReleaseReport) -> list[StopResult]:
    return [result for result in report.results if result.outcome is StopOutcome.STILL_RUNNING]


def _complain(report: ReleaseReport, request: FreeRequest) -> None:
    advice = "" if request.kill else "; --kill would end it by SIGKILL"
    for result in report.results:
        who = f"PID {result.identity.pid} ({result.name})"
        if result.outcome is StopOutcome.STILL_RUNNING:
            print(f"{who} did not exit: {result.reason}{advice}.", file=sys.stderr)
        elif result.outcome is StopOutcome.REFUSED:
            print(f"{who} was not ended: {result.reason}.", file=sys.stderr)


def exit_code_of(report: ReleaseReport) -> int:
    """0 when all are gone, 1 when one did not exit, 3 when one was refused."""
    outcomes = {result.outcome for result in report.results}
    if StopOutcome.STILL_RUNNING in outcomes:
        return 1
    return 3 if StopOutcome.REFUSED in outcomes else 0
