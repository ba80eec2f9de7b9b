"""Looks at the memory at a steady pace and drives a release. No Qt; whoever calls `run` owns the probe.

The counterpart of the engine's loop: frozen commands come in by a queue, frozen values go out by a sink. Waiting is
waiting for the queue, so a Stop is served at once.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Protocol

from app.gpu.errors import ProbeError
from app.gpu.probe import MemoryProbe, OpenedProbe
from app.gpu.record import MemorySample, ProcessIdentity, ProcessKind, ProcessMemory, ReleaseReport, StopOutcome
from engine.errors import EngineError

ACTION_PERIOD_S = 0.25
ACTION_TAIL_S = 10.0
# A look that takes long (a busy driver) is made less often: at most a tenth of the time is spent looking.
_LEAST_REST = 10.0


class Pace(Enum):
    """How often to look; the value is the period in seconds."""

    NORMAL = 1.0
    HIDDEN = 5.0
    PAUSED = float("inf")


@dataclass(frozen=True, slots=True)
class SetPace:
    """Look more or less often. Going back to NORMAL looks at once."""

    pace: Pace


@dataclass(frozen=True, slots=True)
class StartRelease:
    """Ask these processes to exit. The user has agreed."""

    identities: tuple[ProcessIdentity, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """End those of the release that did not exit. The user has agreed a second time."""

    identities: tuple[ProcessIdentity, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Let go of everything and leave."""


SamplerCommand = SetPace | StartRelease | Kill | Stop


class ReleaseLike(Protocol):
    """What is needed of `app.gpu.release.Release`."""

    def start(self) -> ReleaseReport:
        """Send SIGTERM."""

    def kill(self, identities: Sequence[ProcessIdentity]) -> ReleaseReport:
        """Send SIGKILL to those that are left."""

    def poll(self) -> ReleaseReport:
        """Look once, without waiting."""

    def close(self) -> None:
        """Let go of the processes."""


ReleaseFactory = Callable[[Sequence[ProcessMemory], MemoryProbe], ReleaseLike]


class SamplerSink(Protocol):
    """Where things go; called in the sampler's thread, must not block."""

    def opened(self, why: str) -> None:
        """Which memory is shown, and why."""

    def sampled(self, sample: MemorySample) -> None:
        """One look."""

    def released(self, report: ReleaseReport) -> None:
        """How far a release is."""

    def troubled(self, message: str) -> None:
        """A look failed; the next one may not."""

    def release_failed(self, message: str) -> None:
        """A release could not begin; nobody was signalled."""


class Sampler:
    """One probe from opening to closing, and at most one release at a time."""

    def __init__(
        self,
        commands: "SimpleQueue[SamplerCommand]",
        sink: SamplerSink,
        *,
        open_probe: Callable[[], OpenedProbe],
        open_release: ReleaseFactory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._sink = sink
        self._open_probe = open_probe
        self._open_release = open_release
        self._clock = clock
        self._pace = Pace.NORMAL
        self._due_s = -float("inf")
        self._hurry_until_s = -float("inf")
        self._sample: MemorySample | None = None
        self._release: ReleaseLike | None = None
        self._report: ReleaseReport | None = None
        self._stopped = False

    def run(self) -> None:
        """Serve until Stop. Raises what breaks the probe for good, after closing it."""
        opened = self._open_probe()
        try:
            self._sink.opened(opened.why)
            while not self._stopped:
                self._poll_release()
                self._look(opened.probe)
                self._take_commands(opened.probe)
        finally:
            self._end_release()
            opened.probe.close()

    @property
    def _is_releasing(self) -> bool:
        return self._report is not None and not self._report.finished

    @property
    def _period_s(self) -> float:
        hurried = self._is_releasing or self._clock() < self._hurry_until_s
        return min(ACTION_PERIOD_S, self._pace.value) if hurried else self._pace.value

    def _look(self, probe: MemoryProbe) -> None:
        began_s = self._clock()
        if began_s < self._due_s:
            return
        try:
            self._sample = probe.sample()
            self._sink.sampled(self._sample)
        except ProbeError as error:
            self._sink.troubled(str(error))
        self._due_s = began_s + max(self._period_s, _LEAST_REST * (self._clock() - began_s))

    def _take_commands(self, probe: MemoryProbe) -> None:
        """Wait until the next look is due or a command comes; apply all that have come."""
        wait_s = max(0.0, self._due_s - self._clock())
        if self._is_releasing:
            wait_s = min(wait_s, ACTION_PERIOD_S)
        try:
            command = self._commands.get(timeout=None if wait_s == float("inf") else wait_s)
            while True:
                self._apply(command, probe)
                command = self._commands.get_nowait()
        except Empty:
            return

    def _apply(self, command: SamplerCommand, probe: MemoryProbe) -> None:
        match command:
            case SetPace(pace):
                self._pace = pace
                self._due_s = self._clock() + (0.0 if pace is Pace.NORMAL else pace.value)
            case StartRelease(identities) if not self._is_releasing:
                self._start_release(identities, probe)
            case Kill(identities) if self._release is not None:
                self._report_release(self._release.kill(identities))
            case Stop():
                self._stopped = True

    def _start_release(self, identities: Sequence[ProcessIdentity], probe: MemoryProbe) -> None:
        self._end_release()
        self._release = self._open_release([self._described(identity) for identity in identities], probe)
        try:
            self._report_release(self._release.start())
        except EngineError as error:
            self._end_release()
            self._sink.release_failed(f"Nobody was asked to exit. {error}")

    def _described(self, identity: ProcessIdentity) -> ProcessMemory:
        processes = self._sample.processes if self._sample is not None else ()
        seen = next((process for process in processes if process.identity == identity), None)
        # Gone since the user chose it: the release will find that out and say so.
        return seen or ProcessMemory(
            identity=identity,
            name=f"PID {identity.pid}",
            user="",
            command="",
            memory_bytes=None,
            kind=ProcessKind.UNKNOWN,
        )

    def _poll_release(self) -> None:
        if self._release is not None and self._is_releasing:
            self._report_release(self._release.poll())

    def _report_release(self, report: ReleaseReport) -> None:
        self._report = report
        self._hurry_until_s = self._clock() + ACTION_TAIL_S
        self._due_s = min(self._due_s, self._clock() + ACTION_PERIOD_S)
        self._sink.released(report)
        can_be_killed = any(result.outcome is StopOutcome.STILL_RUNNING for result in report.results)
        if report.finished and not can_be_killed:
            self._end_release()

    def _end_release(self) -> None:
        if self._release is not None:
            self._release.close()
            self._release = None
