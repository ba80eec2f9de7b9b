"""The sampler's pace and its releases, without a thread and without waiting: the queue is the clock."""

import itertools
from queue import Empty

import pytest

from app.gpu.probe import OpenedProbe
from app.gpu.record import MemorySample, ProcessIdentity, ReleaseReport, StopOutcome
from app.monitor.sampler import Kill, Pace, Sampler, SamplerCommand, SetPace, StartRelease, Stop
from tests.fakes.clock import FakeClock
from tests.fakes.memory import GIB, process
from tests.fakes.probe import FakeProbe
from tests.fakes.release import FakeRelease

LLAMA = process("llama-server", 42, 5 * GIB)


class ScriptedQueue:
    """Commands that come at given times; waiting for one lets the clock go on."""

    def __init__(self, clock: FakeClock, script: list[tuple[float, SamplerCommand]]) -> None:
        self._clock = clock
        self._script = list(script)
        self.waits: list[float | None] = []

    def get(self, timeout: float | None = None) -> SamplerCommand:
        self.waits.append(timeout)
        due = self._script[0][0]
        if timeout is not None and due > self._clock() + timeout:
            self._clock.advance(timeout)
            raise Empty
        self._clock.now_s = max(due, self._clock())
        return self._script.pop(0)[1]

    def get_nowait(self) -> SamplerCommand:
        if not self._script or self._script[0][0] > self._clock():
            raise Empty
        return self._script.pop(0)[1]


class Recorder:
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.samples: list[float] = []
        self.reports: list[ReleaseReport] = []
        self.report_times: list[float] = []
        self.troubles: list[str] = []
        self.failures: list[str] = []
        self.why = ""

    def opened(self, why: str) -> None:
        self.why = why

    def sampled(self, _sample: MemorySample) -> None:
        self.samples.append(self._clock() - 1000)

    def released(self, report: ReleaseReport) -> None:
        self.reports.append(report)
        self.report_times.append(self._clock() - 1000)

    def troubled(self, message: str) -> None:
        self.troubles.append(message)

    def release_failed(self, message: str) -> None:
        self.failures.append(message)


class Run:
    """One run of a sampler over a script of (seconds from the start, command)."""

    def __init__(
        self,
        *script: tuple[float, SamplerCommand],
        probe: FakeProbe | None = None,
        release: FakeRelease | None = None,
        look_s: float = 0.0,
    ) -> None:
        clock = FakeClock()
        self.sink = Recorder(clock)
        self.probe = probe or FakeProbe()
        self.probe.processes = (LLAMA,)
        self.release = release or FakeRelease()
        self.queue = ScriptedQueue(clock, [(1000 + time_s, command) for time_s, command in script])
        look = self.probe.sample

        def slow_look() -> MemorySample:
            clock.advance(look_s)
            return look()

        self.probe.sample = slow_look  # type: ignore[method-assign]
        Sampler(
            self.queue,  # type: ignore[arg-type]
            self.sink,
            open_probe=lambda: OpenedProbe(self.probe, "because"),
            open_release=self.release.open,
            clock=clock,
        ).run()


def test_one_look_a_second() -> None:
    run = Run((5.5, Stop()))
    assert run.sink.samples == [0, 1, 2, 3, 4, 5]
    assert run.sink.why == "because"
    assert run.probe.closed


def test_slower_while_hidden_and_at_once_when_seen_again() -> None:
    run = Run((2.5, SetPace(Pace.HIDDEN)), (14.0, SetPace(Pace.NORMAL)), (15.5, Stop()))
    assert run.sink.samples == [0, 1, 2, 7.5, 12.5, 14, 15]


def test_paused_waits_for_a_command_only() -> None:
    run = Run((1.5, SetPace(Pace.PAUSED)), (500.0, SetPace(Pace.NORMAL)), (500.5, Stop()))
    assert run.sink.samples == [0, 1, 500]
    assert None in run.queue.waits


def test_a_slow_driver_is_asked_less_often() -> None:
    run = Run((20.0, Stop()), look_s=0.3)
    gaps = [after - before for before, after in zip(run.sink.samples, run.sink.samples[1:], strict=False)]
    assert min(gaps) >= 3.0 - 1e-9


def test_a_failed_look_is_told_and_tried_again() -> None:
    probe = FakeProbe()
    probe.broken = True
    run = Run((2.5, Stop()), probe=probe)
    assert run.sink.troubles == ["GPU 0 stopped answering."] * 3
    assert run.sink.samples == []


def test_release_looks_four_times_a_second_until_ten_seconds_after() -> None:
    run = Run((2.5, StartRelease((LLAMA.identity,))), (30.0, Stop()), release=FakeRelease(polls_to_exit=4))
    assert run.release.targets == (LLAMA,)
    assert [report.finished for report in run.sink.reports] == [False] * 4 + [True]
    end = run.sink.report_times[-1]
    during = [time_s for time_s in run.sink.samples if 2.5 <= time_s <= end + 10]
    gaps = [after - before for before, after in itertools.pairwise(during)]
    assert max(gaps) <= 0.25 + 1e-9
    later = [time_s for time_s in run.sink.samples if time_s > end + 11]
    assert later
    assert all(after - before == pytest.approx(1) for before, after in itertools.pairwise(later))
    assert run.release.closed == 1


def test_second_consent_kills_what_is_left() -> None:
    release = FakeRelease(stubborn=["llama-server"])
    run = Run(
        (1.5, StartRelease((LLAMA.identity,))), (9.0, Kill((LLAMA.identity,))), (20.0, Stop()), release=release
    )  # fmt: skip
    outcomes = [report.results[0].outcome for report in run.sink.reports]
    assert outcomes[0] is StopOutcome.WAITING
    assert StopOutcome.STILL_RUNNING in outcomes
    assert outcomes[-1] is StopOutcome.KILLED
    assert release.killed == (LLAMA.identity,)


def test_nobody_is_killed_without_a_release() -> None:
    run = Run((1.5, Kill((LLAMA.identity,))), (2.0, Stop()))
    assert run.release.killed == ()
    assert run.sink.reports == []


def test_a_second_release_waits_for_the_first_to_end() -> None:
    other = ProcessIdentity(43, 430)
    release = FakeRelease(polls_to_exit=10)
    run = Run((1.0, StartRelease((LLAMA.identity,))), (1.3, StartRelease((other,))), (20, Stop()), release=release)
    assert release.targets == (LLAMA,)
    assert run.sink.reports[-1].finished


def test_who_has_gone_meanwhile_is_named_by_its_pid() -> None:
    run = Run((1.0, StartRelease((ProcessIdentity(7, 70),))), (5.0, Stop()))
    [target] = run.release.targets
    assert (target.identity, target.name, target.memory_bytes) == (ProcessIdentity(7, 70), "PID 7", None)


def test_a_release_that_cannot_begin_says_so_and_sampling_goes_on() -> None:
    run = Run((1.5, StartRelease((LLAMA.identity,))), (3.5, Stop()), release=FakeRelease(broken=True))
    assert run.sink.failures == ["Nobody was asked to exit. GPU 0 stopped answering."]
    assert run.sink.samples == [0, 1, 2, 3]
    assert run.release.closed == 1


def test_stop_lets_go_of_a_running_release() -> None:
    run = Run((1.0, StartRelease((LLAMA.identity,))), (1.1, Stop()), release=FakeRelease(polls_to_exit=100))
    assert run.release.closed == 1
    assert run.probe.closed


def test_what_breaks_the_probe_for_good_is_raised_after_closing_it() -> None:
    probe = FakeProbe()

    def broken() -> MemorySample:
        raise OSError("no more file handles")

    probe.sample = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no more"):
        Run((5, Stop()), probe=probe)
    assert probe.closed
