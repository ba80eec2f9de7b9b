"""What nobody caught is shown once, from whichever thread."""

import threading

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.error_dialog import ErrorDialog, ErrorReporter


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    return window


@pytest.fixture
def reporter(window: QWidget) -> ErrorReporter:
    reporter = ErrorReporter(window)
    reporter.set_window(window)
    return reporter


def dialogs(window: QWidget) -> list[ErrorDialog]:
    return [dialog for dialog in window.findChildren(ErrorDialog) if dialog.isVisible()]


def test_a_report_of_another_thread_is_shown_and_can_be_copied(
    qtbot: QtBot, window: QWidget, reporter: ErrorReporter
) -> None:
    thread = threading.Thread(target=reporter.report, args=("Something went wrong: odd", "Traceback: …"))
    thread.start()
    thread.join()
    assert dialogs(window) == []
    qtbot.waitUntil(lambda: len(dialogs(window)) == 1)
    [dialog] = dialogs(window)
    assert "Something went wrong: odd" in dialog.findChildren(QLabel)[0].text()
    buttons = {button.text(): button for button in dialog.findChildren(QAbstractButton)}
    assert all(button.toolTip() and button.accessibleName() for button in buttons.values())
    buttons["Copy details"].click()
    assert QGuiApplication.clipboard().text() == "Traceback: …"
    buttons["Close"].click()
    qtbot.waitUntil(lambda: dialogs(window) == [])


def test_a_flood_is_one_dialog_with_a_count(qtbot: QtBot, window: QWidget, reporter: ErrorReporter) -> None:
    for number in range(50):
        reporter.report(f"problem {number}", "")
    qtbot.waitUntil(lambda: any("49 more" in label.text() for label in window.findChildren(QLabel)))
    assert len(dialogs(window)) == 1
    dialogs(window)[0].accept()
    reporter.report("later", "")
    qtbot.waitUntil(lambda: any("later" in label.text() for label in window.findChildren(QLabel)))
    dialogs(window)[0].accept()
