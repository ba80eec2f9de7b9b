"""Ending in stages, with workers that behave and workers that do not. Whole programs are ended in test_endings.py."""

import signal

import pytest
from PySide6.QtWidgets import QDialog
from pytestqt.qtbot import QtBot

from app.shutdown import DEADLINE_S, Shutdown, SignalWatcher, Worker


class Fake:
    """Notes what happens, in order; its workers end when told, or never."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.running = {"sampler": True, "engine": True}
        self.now_s = 0.0
        self.shutdown = Shutdown(
            refuse=lambda: self.happened.append("refuse"),
            workers=[self.worker("sampler"), self.worker("engine")],
            save=lambda: self.happened.append("save"),
            clock=lambda: self.now_s,
        )
        self.shutdown.ended.connect(lambda all_ended: self.happened.append(f"ended {all_ended}"))

    def worker(self, name: str) -> Worker:
        return Worker(name, lambda: self.happened.append(f"stop {name}"), lambda: self.running[name])


@pytest.fixture
def fake(qtbot: QtBot) -> Fake:
    return Fake()


def test_the_stages_come_in_order_and_once(qtbot: QtBot, fake: Fake) -> None:
    fake.shutdown.begin()
    fake.shutdown.begin()
    assert fake.happened == ["refuse", "stop sampler", "stop engine"]
    fake.running["sampler"] = False
    with qtbot.assertNotEmitted(fake.shutdown.ended, wait=60):
        pass
    fake.running["engine"] = False
    with qtbot.waitSignal(fake.shutdown.ended):
        pass
    fake.shutdown.begin()
    assert fake.happened == ["refuse", "stop sampler", "stop engine", "save", "ended True"]


def test_with_nothing_running_it_ends_at_once(fake: Fake) -> None:
    fake.running = dict.fromkeys(fake.running, False)
    fake.shutdown.begin()
    assert fake.happened[-2:] == ["save", "ended True"]


def test_a_worker_that_never_ends_is_left_at_the_deadline_after_saving(qtbot: QtBot, fake: Fake) -> None:
    fake.running["sampler"] = False
    fake.shutdown.begin()
    fake.now_s = DEADLINE_S
    with qtbot.waitSignal(fake.shutdown.ended) as ended:
        pass
    assert ended.args == [False]
    assert fake.happened[-2:] == ["save", "ended False"]


def test_a_stage_that_fails_does_not_keep_the_others_from_happening(fake: Fake) -> None:
    fake.running = dict.fromkeys(fake.running, False)
    broken = Worker("broken", lambda: 1 / 0 and None, lambda: False)
    happened: list[str] = []
    shutdown = Shutdown(
        refuse=lambda: 1 / 0 and None,
        workers=[broken, Worker("good", lambda: happened.append("stopped"), lambda: False)],
        save=lambda: 1 / 0 and None,
    )
    shutdown.ended.connect(lambda _all_ended: happened.append("ended"))
    shutdown.begin()
    assert happened == ["stopped", "ended"]


def test_open_dialogs_are_answered_with_cancel(qtbot: QtBot, fake: Fake) -> None:
    dialog = QDialog()
    qtbot.addWidget(dialog)
    dialog.open()
    with qtbot.waitSignal(dialog.rejected):
        fake.shutdown.begin()
    assert not dialog.isVisible()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_told_and_the_second_is_left_to_the_system(qtbot: QtBot, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    watcher = SignalWatcher()
    with qtbot.waitSignal(watcher.arrived) as arrived:
        signal.raise_signal(number)
    assert arrived.args == [number]
    assert signal.getsignal(number) is signal.SIG_DFL
    watcher.close()
    assert signal.getsignal(number) is before


def test_a_signal_that_was_ignored_stays_ignored(qtbot: QtBot) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        watcher = SignalWatcher()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        watcher.close()
    finally:
        signal.signal(signal.SIGHUP, before)
