"""Whole programs, ended in every state by the close button and by signals; and a second start beside the first."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATES = ["empty", "idle", "loading", "generating", "downloading", "dialog"]
LIMIT_S = 30  # generous for a busy machine; that it ends by itself at all is what is asserted


VICTIM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = bytearray(64_000_000)
memory[::4096] = b"x" * len(memory[::4096])
print("ready", flush=True)
time.sleep(120)
"""


@contextmanager
def program(state: str, folder: Path, first_words: str = "") -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.app.ending_program", state, str(folder)]
    child = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with child:
        try:
            assert child.stdout is not None
            assert child.stdin is not None
            child.stdin.write(first_words)
            child.stdin.flush()
            line = child.stdout.readline().strip()
            assert line == "reached", f"{line!r} {child.communicate()[1] if child.poll() is not None else ''}"
            yield child
        finally:
            child.kill()


def end(child: subprocess.Popen[str], way: str) -> tuple[int, str]:
    """End it; returns exit code and stderr."""
    if way == "close":
        assert child.stdin is not None
        child.stdin.write("close\n")
        child.stdin.flush()
    else:
        child.send_signal(signal.Signals[way])
    errors = child.communicate(timeout=LIMIT_S)[1]
    return child.returncode, errors


@pytest.mark.parametrize(
    ("state", "way"),
    [
        *((state, way) for state in STATES for way in ("SIGTERM", "close")),
        ("generating", "SIGINT"),
        ("dialog", "SIGINT"),
    ],
)
def test_it_ends_cleanly(tmp_path: Path, state: str, way: str) -> None:
    with program(state, tmp_path) as child:
        code, errors = end(child, way)
    assert (code, errors) == (0, "")
    assert json.loads((tmp_path / "settings.json").read_text())["window_geometry"]
    log = (tmp_path / "kvscope.log").read_text()
    assert "ERROR" not in log
    assert (tmp_path / "kvscope.crash").read_text() == ""


def test_it_ends_while_a_release_waits(tmp_path: Path) -> None:
    """The process that was asked to exit, and does not, is left alone."""
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
            with program("release", tmp_path, f"{victim.pid}\n") as child:
                assert end(child, "SIGTERM") == (0, "")
            assert victim.poll() is None
        finally:
            victim.kill()


def test_a_thread_that_never_ends_does_not_keep_the_window(tmp_path: Path) -> None:
    with program("stuck", tmp_path) as child:
        code, _ = end(child, "SIGTERM")
    assert code == 1
    assert "still running after 4 s: the engine" in (tmp_path / "kvscope.log").read_text()
    assert json.loads((tmp_path / "settings.json").read_text())["window_geometry"], "it is saved all the same"


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with program("stuck", tmp_path) as child:
        child.send_signal(signal.SIGTERM)
        log = tmp_path / "kvscope.log"
        while "SIGTERM" not in log.read_text():
            assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=LIMIT_S)
    assert child.returncode == -signal.SIGTERM


def test_a_second_start_raises_the_first_and_exits(tmp_path: Path) -> None:
    with program("idle", tmp_path) as first:
        command = [sys.executable, "-m", "app.main", "--data-dir", str(tmp_path)]
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert second.returncode == 0
        assert "its window was brought to the front" in second.stdout
        assert second.stderr == ""
        assert first.stdout is not None
        assert first.stdout.readline().strip() == "raised"
        picture = subprocess.run(
            [*command, "--screenshot", str(tmp_path / "a.png")],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
        assert picture.returncode == 1
        assert "KVScope is open already" in picture.stderr
        assert not (tmp_path / "a.png").exists()
        assert end(first, "SIGTERM")[0] == 0


def test_after_a_kill_the_next_start_works(tmp_path: Path) -> None:
    with program("idle", tmp_path) as first:
        first.kill()
        first.communicate()
    with program("idle", tmp_path) as second:
        assert end(second, "SIGTERM") == (0, "")
