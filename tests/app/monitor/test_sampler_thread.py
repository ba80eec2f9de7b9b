"""The thread: signals arrive in the window's thread, it ends at once, and it can be started again."""

import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject, Slot
from pytestqt.qtbot import QtBot

from app.gpu.probe import OpenedProbe
from app.gpu.record import MemorySample
from app.monitor.sampler import Pace
from app.monitor.sampler_thread import SamplerThread
from tests.fakes.memory import GIB, process
from tests.fakes.probe import FakeProbe
from tests.fakes.release import FakeRelease

LLAMA = process("llama-server", 42, 5 * GIB)


class Listener(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.samples: list[MemorySample] = []

    @Slot(object)
    def take(self, sample: MemorySample) -> None:
        self.threads.append(threading.get_ident())
        self.samples.append(sample)


class ThreadProbe(FakeProbe):
    """Remembers which threads touched it."""

    def __init__(self) -> None:
        super().__init__()
        self.processes = (LLAMA,)
        self.threads: set[int] = set()
        self.error: Exception | None = None

    def open(self) -> OpenedProbe:
        self.threads.add(threading.get_ident())
        self.closed = False
        return OpenedProbe(self, "Showing a fake card.")

    def sample(self) -> MemorySample:
        self.threads.add(threading.get_ident())
        if self.error is not None:
            raise self.error
        return super().sample()

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        super().close()


@pytest.fixture
def probe() -> ThreadProbe:
    return ThreadProbe()


@pytest.fixture
def release() -> FakeRelease:
    return FakeRelease(polls_to_exit=1)


@pytest.fixture
def sampler(qtbot: QtBot, probe: ThreadProbe, release: FakeRelease) -> Iterator[SamplerThread]:
    sampler = SamplerThread(open_probe=probe.open, open_release=release.open)
    yield sampler
    sampler.stop()
    assert sampler.wait(5000)


def stop(qtbot: QtBot, sampler: SamplerThread) -> None:
    with qtbot.waitSignal(sampler.finished, timeout=5000):
        sampler.stop()


def test_samples_arrive_in_the_windows_thread(qtbot: QtBot, sampler: SamplerThread, probe: ThreadProbe) -> None:
    listener = Listener()
    sampler.sampled.connect(listener.take)
    with qtbot.waitSignal(sampler.probe_opened) as opened:
        sampler.start_sampling()
    assert opened.args == ["Showing a fake card."]
    qtbot.waitUntil(lambda: bool(listener.samples))
    stop(qtbot, sampler)
    assert set(listener.threads) == {threading.get_ident()}
    assert len(probe.threads) == 1
    assert threading.get_ident() not in probe.threads
    assert probe.closed


def test_it_ends_at_once_even_when_paused(qtbot: QtBot, sampler: SamplerThread, probe: ThreadProbe) -> None:
    with qtbot.waitSignal(sampler.sampled):
        sampler.start_sampling()
    sampler.set_pace(Pace.PAUSED)
    stop(qtbot, sampler)
    assert sampler.isFinished()
    assert probe.closed


def test_a_release_is_reported(qtbot: QtBot, sampler: SamplerThread, release: FakeRelease) -> None:
    with qtbot.waitSignal(sampler.sampled):
        sampler.start_sampling()
    with qtbot.waitSignal(sampler.release_progressed, check_params_cb=lambda report: report.finished):
        sampler.start_release((LLAMA.identity,))
    assert release.targets == (LLAMA,)
    sampler.kill((LLAMA.identity,))
    stop(qtbot, sampler)


def test_a_crash_is_told_and_it_can_be_started_again(
    qtbot: QtBot, sampler: SamplerThread, probe: ThreadProbe, release: FakeRelease
) -> None:
    probe.error = OSError("boom")
    with qtbot.waitSignal(sampler.finished), qtbot.waitSignal(sampler.failed) as failed:
        sampler.start_sampling()
    assert failed.args is not None
    assert "OSError: boom" in failed.args[0]
    assert probe.closed
    with qtbot.waitSignal(sampler.release_failed):  # a dead sampler says that it cannot, and does not do it late
        sampler.start_release((LLAMA.identity,))
    probe.error = None
    with qtbot.waitSignal(sampler.sampled):
        sampler.start_sampling()
    with qtbot.assertNotEmitted(sampler.release_progressed, wait=50):
        stop(qtbot, sampler)
    assert release.targets == ()


def test_no_probe_at_all(qtbot: QtBot) -> None:
    def no_probe() -> OpenedProbe:
        raise OSError("no /proc here")

    sampler = SamplerThread(open_probe=no_probe, open_release=FakeRelease().open)
    with qtbot.waitSignal(sampler.finished), qtbot.waitSignal(sampler.failed) as failed:
        sampler.start_sampling()
    assert failed.args is not None
    assert "no /proc here" in failed.args[0]


def test_the_real_probe_of_this_machine(qtbot: QtBot) -> None:
    sampler = SamplerThread()
    with qtbot.waitSignal(sampler.sampled, timeout=20_000) as sampled:
        sampler.start_sampling()
    stop(qtbot, sampler)
    assert sampled.args is not None
    look = sampled.args[0]
    assert look.used_bytes <= look.total_bytes
