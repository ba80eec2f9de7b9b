"""One window per data folder, with real processes for the ones that die."""

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.instance import LOCK_NAME, Instance

HOLDER = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.instance import Instance
application = QCoreApplication([])
instance = Instance(Path(sys.argv[1]))
assert instance.claim()
instance.listen()
print("ready", flush=True)
application.exec()
"""


@pytest.fixture
def first(tmp_path: Path, qtbot: QtBot) -> Iterator[Instance]:
    instance = Instance(tmp_path)
    assert instance.claim()
    instance.listen()
    yield instance
    instance.release()


def test_a_second_claim_fails_until_the_first_is_released(first: Instance, tmp_path: Path) -> None:
    second = Instance(tmp_path / "." / "x" / "..")
    assert not second.claim()
    first.release()
    assert second.claim()
    second.release()


def test_another_folder_is_another_window(first: Instance, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Instance(tmp_path / "other")
    assert other.claim()
    assert other.address != first.address
    other.release()


def test_a_second_start_raises_the_first_window(first: Instance, tmp_path: Path, qtbot: QtBot) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from PySide6.QtCore import QCoreApplication\n"
        "from app.instance import Instance\n"
        "application = QCoreApplication([]); instance = Instance(Path(sys.argv[1]))\n"
        "print(instance.claim(), instance.raise_other())"
    )
    with (
        qtbot.waitSignal(first.raise_asked, timeout=20_000),
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as second,
    ):
        qtbot.waitUntil(lambda: second.poll() is not None, timeout=20_000)
        assert second.stdout is not None
        assert second.stdout.read().split() == ["False", "True"]


def test_a_killed_instance_leaves_nothing_in_the_way(tmp_path: Path, qtbot: QtBot) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        later = Instance(tmp_path)
        assert not later.claim()
        holder.kill()
        holder.wait()
    assert later.claim()
    later.listen()
    assert later._server.isListening()
    later.release()


def test_a_holder_that_does_not_answer_is_told_apart(
    tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.instance.ANSWER_MS", 50)
    with (tmp_path / LOCK_NAME).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = Instance(tmp_path)
        assert not second.claim()
        assert not second.raise_other()


def test_a_folder_that_cannot_be_written_is_nobodys(tmp_path: Path, qtbot: QtBot) -> None:
    instance = Instance(tmp_path / "missing")
    assert instance.claim()
    instance.listen()
    assert not instance._server.isListening()
