from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.widgets import Pacer


def test_a_pacer_acts_at_once_and_once_more_at_the_end(qtbot: QtBot, qapp: QApplication) -> None:
    owner, done = QObject(), []
    pacer = Pacer(lambda: done.append(1), 30, owner)
    for _ in range(50):
        pacer.ask()
    assert len(done) == 1
    qtbot.waitUntil(lambda: len(done) == 2)
    qtbot.wait(60)
    assert len(done) == 2, "nothing was asked for meanwhile"


def test_what_was_cancelled_is_not_done_late(qtbot: QtBot, qapp: QApplication) -> None:
    owner, done = QObject(), []
    pacer = Pacer(lambda: done.append(1), 30, owner)
    pacer.ask()
    pacer.ask()
    pacer.cancel()
    qtbot.wait(60)
    assert len(done) == 1
    pacer.ask()
    assert len(done) == 2
