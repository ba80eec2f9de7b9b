"""The log file and the hooks."""

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import qCritical, qWarning

from app.logs import ExceptionHooks, Logs, log_qt_messages


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    level = logging.getLogger().level
    logs = Logs(tmp_path / "state" / "kvscope.log")
    yield logs
    logs.close()
    logging.getLogger().setLevel(level)


class Reports:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, message: str, details: str) -> None:
        self.told.append((message, details))


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def hooks(reports: Reports) -> Iterator[ExceptionHooks]:
    hooks = ExceptionHooks(reports)
    hooks.install()
    yield hooks
    hooks.remove()


def test_lines_go_to_the_file(logs: Logs) -> None:
    logging.getLogger("app.test").info("hello %s", "there")
    assert logs.path is not None
    assert "app.test: hello there" in logs.path.read_text()
    assert logs.path.with_suffix(".crash").exists()


def test_without_a_folder_errors_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    logs = Logs(tmp_path / "file" / "kvscope.log")
    logging.getLogger("app.test").warning("quiet")
    logging.getLogger("app.test").error("loud")
    logs.close()
    assert logs.path is None
    error = capsys.readouterr().err
    assert "loud" in error
    assert "quiet" not in error


def raise_error() -> None:
    raise ValueError("odd")


@pytest.mark.usefixtures("hooks")
def test_an_uncaught_exception_is_logged_and_reported(logs: Logs, reports: Reports) -> None:
    try:
        raise_error()
    except ValueError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    [(message, details)] = reports.told
    assert message == "Something went wrong in the window: odd"
    assert "raise_error" in details
    assert logs.path is not None
    assert "raise_error" in logs.path.read_text()


@pytest.mark.usefixtures("hooks")
def test_a_thread_that_fails_is_reported_by_name(reports: Reports) -> None:
    thread = threading.Thread(target=raise_error, name="the reader")
    thread.start()
    thread.join()
    [(message, details)] = reports.told
    assert message == "Something went wrong in the reader: odd"
    assert "raise_error" in details


def test_removed_hooks_are_the_former_ones(reports: Reports) -> None:
    before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
    hooks = ExceptionHooks(reports)
    hooks.install()
    assert sys.excepthook != before[0]
    hooks.remove()
    assert (sys.excepthook, threading.excepthook, sys.unraisablehook) == before


@pytest.mark.no_qt_log
def test_qt_messages_are_logged_and_critical_ones_reported(logs: Logs, reports: Reports) -> None:
    undo = log_qt_messages(reports)
    qWarning("a warning")
    qCritical("a disaster")
    undo()
    assert logs.path is not None
    text = logs.path.read_text()
    assert "a warning" in text
    assert [message for message, _ in reports.told] == ["Qt reports a serious problem: a disaster"]
