"""A release that answers from the hand of the test."""

from collections.abc import Iterable, Sequence

from app.gpu.errors import ProbeError
from app.gpu.probe import MemoryProbe
from app.gpu.record import ProcessIdentity, ProcessMemory, ReleaseReport, StopOutcome, StopResult


def report(
    outcomes: Sequence[tuple[ProcessMemory, StopOutcome]],
    *,
    finished: bool,
    returned_bytes: int = 0,
    elapsed_s: float = 1.0,
    reason: str = "",
    note: str = "",
) -> ReleaseReport:
    """What a release would say; the ended ones promise what they held."""
    ended = (StopOutcome.EXITED, StopOutcome.KILLED)
    results = tuple(
        StopResult(
            identity=process.identity,
            name=process.name,
            outcome=outcome,
            promised_bytes=process.memory_bytes or 0,
            reason=reason if outcome not in ended else "",
        )
        for process, outcome in outcomes
    )
    return ReleaseReport(
        results=results,
        elapsed_s=elapsed_s,
        deadline_s=10.0,
        free_before_bytes=0,
        free_after_bytes=returned_bytes,
        returned_bytes=returned_bytes,
        promised_bytes=sum(result.promised_bytes for result in results if result.outcome in ended),
        finished=finished,
        note=note,
    )


class FakeRelease:
    """Every process exits at the `polls_to_exit`th poll; those named in `stubborn` only by `kill`."""

    def __init__(self, *, polls_to_exit: int = 2, stubborn: Iterable[str] = (), broken: bool = False) -> None:
        self.polls_to_exit = polls_to_exit
        self.stubborn = frozenset(stubborn)
        self.broken = broken
        self.targets: tuple[ProcessMemory, ...] = ()
        self.killed: tuple[ProcessIdentity, ...] = ()
        self.polls = 0
        self.closed = 0

    def open(self, targets: Sequence[ProcessMemory], _probe: MemoryProbe) -> "FakeRelease":
        self.targets = tuple(targets)
        self.polls = 0
        return self

    def start(self) -> ReleaseReport:
        if self.broken:
            raise ProbeError("GPU 0 stopped answering.")
        return self._report()

    def poll(self) -> ReleaseReport:
        self.polls += 1
        return self._report()

    def kill(self, identities: Sequence[ProcessIdentity]) -> ReleaseReport:
        self.killed = tuple(identities)
        return self._report()

    def close(self) -> None:
        self.closed += 1

    def _report(self) -> ReleaseReport:
        finished = self.polls >= self.polls_to_exit
        outcomes = [(target, self._outcome(target, finished=finished)) for target in self.targets]
        returned = sum(
            target.memory_bytes or 0
            for target, outcome in outcomes
            if outcome in (StopOutcome.EXITED, StopOutcome.KILLED)
        )
        return report(outcomes, finished=finished, returned_bytes=returned)

    def _outcome(self, target: ProcessMemory, *, finished: bool) -> StopOutcome:
        if target.identity in self.killed:
            return StopOutcome.KILLED
        if not finished:
            return StopOutcome.WAITING
        return StopOutcome.STILL_RUNNING if target.name in self.stubborn else StopOutcome.EXITED
