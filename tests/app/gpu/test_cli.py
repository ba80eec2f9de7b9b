"""The commands as somebody types them: a process of their own, exit codes, stdout and stderr."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.household import HOLDS_MEMORY, IGNORES_SIGTERM, Household

MIB = 1 << 20

# The function behind the command, with less patience: `free` itself waits for ten seconds.
IMPATIENT = """
import json, pathlib, sys
from app.gpu.cli import FreeRequest, free
from app.gpu.journal import ReleaseJournal
from app.gpu.release import ReleaseTimes
asked = json.loads(sys.argv[1])
journal = ReleaseJournal(pathlib.Path(asked.pop("journal")))
request = FreeRequest(pids=tuple(asked.pop("pids")), **asked)
sys.exit(free(request, journal=journal, times=ReleaseTimes(grace_s=0.3, settle_s=0, look_period_s=0)))
"""


class Terminal:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.environment = {**os.environ, "XDG_DATA_HOME": str(data)}

    def types(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._runs([sys.executable, "-m", "app.cli", *arguments])

    def frees(self, *pids: int, **asked: bool) -> subprocess.CompletedProcess[str]:
        text = json.dumps({"pids": pids, "journal": str(self.data / "released.jsonl"), **asked})
        return self._runs([sys.executable, "-c", IMPATIENT, text])

    def _runs(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    @property
    def journal(self) -> list[dict[str, Any]]:
        (path,) = self.data.rglob("released.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "data")


def assert_one_sentence(text: str) -> None:
    assert text.endswith(".\n")
    assert text.count("\n") == 1
    assert "Traceback" not in text


# --- ps ---


def test_ps_lists_holders_largest_first_with_totals(household: Household, terminal: Terminal) -> None:
    child = household.python(HOLDS_MEMORY.format(mib=64))
    done = terminal.types("ps")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert " used, " in done.stdout
    assert " free, " in done.stdout
    (row,) = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == [str(child.pid)]]
    assert row[2] == "application"


def test_ps_as_json_adds_up(household: Household, terminal: Terminal) -> None:
    child = household.python(HOLDS_MEMORY.format(mib=64))
    said = json.loads(terminal.types("ps", "--json").stdout)
    held = [row["memory_bytes"] or 0 for row in said["processes"]]
    assert held == sorted(held, reverse=True)
    assert sum(held) + said["shared_bytes"] + said["unattributed_bytes"] == said["used_bytes"]
    rows = {row["pid"]: row for row in said["processes"]}
    if said["memory"] == "system":
        assert rows[child.pid]["memory_bytes"] >= 60 * MIB
        assert rows[child.pid]["protected_because"] == ""
        assert rows[child.pid]["start_ticks"] == household.entry(child.pid).identity.start_ticks
    assert any(row["kind"] == "KVScope" for row in rows.values()) or said["memory"] == "vram"


def test_commands_start_without_qt_and_torch() -> None:
    code = "import sys, app.cli; print([n for n in ('torch', 'PySide6', 'pyqtgraph', 'pynvml') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- usage and refusals ---


@pytest.mark.parametrize(
    "arguments",
    [
        ["free"],
        ["free", "--pid", "x"],
        ["free", "--pid", "0"],
        ["free", "--pid", "-5"],
        ["free", "--pid", "1", "--force"],
        ["ps", "more"],
        ["no-such-command"],
    ],
    ids=" ".join,
)
def test_usage_errors_exit_2_with_one_sentence(terminal: Terminal, arguments: list[str]) -> None:
    done = terminal.types(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert_one_sentence(done.stderr)


@pytest.mark.parametrize("extra", [[], ["--dry-run"]], ids=["yes", "dry run"])
def test_pid_of_nobody_exits_3(terminal: Terminal, extra: list[str]) -> None:
    done = terminal.types("free", "--pid", str((1 << 22) - 1), "--yes", *extra)
    assert done.returncode == 3
    assert "no process with PID 4194303" in done.stderr
    assert_one_sentence(done.stderr)


def test_ancestor_exits_3_with_the_reason(terminal: Terminal) -> None:
    # This very process starts the command. A dry run, lest a mistake should end it.
    done = terminal.types("free", "--pid", str(os.getpid()), "--yes", "--dry-run", "--json")
    assert done.returncode == 3
    assert "what KVScope was started from" in done.stderr
    assert json.loads(done.stdout)["error"] == done.stderr.strip()


def test_first_process_exits_3(terminal: Terminal) -> None:
    done = terminal.types("free", "--pid", "1", "--yes", "--dry-run")
    assert done.returncode == 3
    assert_one_sentence(done.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_other_users_process_exits_3_and_lives(household: Household, terminal: Terminal) -> None:
    child = household.start("sleep", "600", user=65534)
    done = terminal.types("free", "--pid", str(child.pid), "--yes")
    assert done.returncode == 3
    assert "owned by the user" in done.stderr
    assert child.poll() is None


def test_one_protected_process_saves_all(household: Household, terminal: Terminal) -> None:
    child = household.start("sleep", "600")
    done = terminal.types("free", "--pid", str(child.pid), "--pid", str(os.getpid()), "--yes", "--dry-run")
    assert done.returncode == 3
    assert child.poll() is None


def test_without_yes_and_without_a_terminal_nothing_happens(household: Household, terminal: Terminal) -> None:
    child = household.start("sleep", "600")
    done = terminal.types("free", "--pid", str(child.pid))
    assert done.returncode == 3
    assert "--yes" in done.stderr
    assert_one_sentence(done.stderr)
    assert child.poll() is None


def test_kill_alone_is_not_the_first_consent(household: Household, terminal: Terminal) -> None:
    child = household.start("sleep", "600")
    assert terminal.types("free", "--pid", str(child.pid), "--kill").returncode == 3
    assert child.poll() is None


# --- ending ---


def test_dry_run_says_what_would_be_done(household: Household, terminal: Terminal) -> None:
    child = household.python(HOLDS_MEMORY.format(mib=64))
    done = terminal.types("free", "--pid", str(child.pid), "--dry-run", "--kill")
    assert done.returncode == 0, done.stderr
    assert "SIGTERM" in done.stdout
    assert "SIGKILL" in done.stdout
    assert f"PID {child.pid}" in done.stdout
    said = json.loads(terminal.types("free", "--pid", str(child.pid), "--dry-run", "--json").stdout)
    assert said["dry_run"] is True
    assert said["means"] == ["SIGTERM"]
    assert [row["pid"] for row in said["processes"]] == [child.pid]
    assert child.poll() is None
    assert not terminal.data.exists()


def test_polite_process_ends_and_the_bytes_are_told(household: Household, terminal: Terminal) -> None:
    child = household.python(HOLDS_MEMORY.format(mib=256))
    done = terminal.types("free", "--pid", str(child.pid), "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert child.wait() == -signal.SIGTERM
    said = json.loads(done.stdout)
    assert [row["outcome"] for row in said["results"]] == ["exited"]
    if said["promised_bytes"]:
        assert said["promised_bytes"] >= 256 * MIB
        assert said["returned_bytes"] >= 0.9 * said["promised_bytes"]
    (line,) = terminal.journal
    assert (line["pid"], line["means"], line["outcome"]) == (child.pid, "SIGTERM", "exited")


def test_process_without_memory_of_note_may_be_named(household: Household, terminal: Terminal) -> None:
    children = [household.start("sleep", "600") for _ in range(2)]
    done = terminal.types("free", *(word for child in children for word in ("--pid", str(child.pid))), "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": exited") == 2
    assert "Promised" in done.stdout
    assert "returned" in done.stdout
    assert [child.wait() for child in children] == [-signal.SIGTERM] * 2


def test_yes_ends_at_sigterm(household: Household, terminal: Terminal) -> None:
    child = household.python(IGNORES_SIGTERM)
    done = terminal.frees(child.pid, yes=True)
    assert done.returncode == 1
    assert "did not exit" in done.stderr
    assert "--kill" in done.stderr
    assert_one_sentence(done.stderr)
    assert child.poll() is None


def test_kill_is_the_second_consent(household: Household, terminal: Terminal) -> None:
    child = household.python(IGNORES_SIGTERM)
    done = terminal.frees(child.pid, yes=True, kill=True, as_json=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["outcome"] == "killed"
    assert child.wait() == -signal.SIGKILL
    assert [line["means"] for line in terminal.journal] == ["SIGTERM", "SIGKILL"]


def test_kill_spares_who_exits_on_sigterm(household: Household, terminal: Terminal) -> None:
    child = household.start("sleep", "600")
    done = terminal.frees(child.pid, yes=True, kill=True, as_json=True)
    assert json.loads(done.stdout)["results"][0]["outcome"] == "exited"
    assert child.wait() == -signal.SIGTERM


# --- at a terminal ---


def at_a_terminal(command: list[str], answers: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Runs `command` on a terminal of its own; each answer is given when the next question has been asked."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = ""
    todo = list(answers)
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                said += os.read(ours, 4096).decode()
            except OSError:  # the other end is closed
                break
            if todo and said.count("[y/N]") > len(answers) - len(todo):
                os.write(ours, (todo.pop(0) + "\n").encode())
        return child.wait(), said
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def test_yes_at_the_terminal_ends_it(household: Household, terminal: Terminal) -> None:
    child = household.start("sleep", "600")
    command = [sys.executable, "-m", "app.cli", "free", "--pid", str(child.pid)]
    code, said = at_a_terminal(command, ["y"], terminal.environment)
    assert code == 0
    assert f"PID {child.pid} (sleep)" in said
    assert child.wait() == -signal.SIGTERM


@pytest.mark.parametrize("answer", ["n", "", "maybe"])
def test_anything_else_at_the_terminal_leaves_it(household: Household, terminal: Terminal, answer: str) -> None:
    child = household.start("sleep", "600")
    command = [sys.executable, "-m", "app.cli", "free", "--pid", str(child.pid)]
    code, said = at_a_terminal(command, [answer], terminal.environment)
    assert code == 3
    assert "Nothing was ended" in said
    assert child.poll() is None


@pytest.mark.parametrize(("second", "code"), [("y", 0), ("n", 1)])
def test_terminal_is_asked_a_second_time_before_sigkill(
    household: Household, terminal: Terminal, second: str, code: int
) -> None:
    child = household.python(IGNORES_SIGTERM)
    asked = json.dumps({"pids": [child.pid], "journal": str(terminal.data / "released.jsonl")})
    got, said = at_a_terminal([sys.executable, "-c", IMPATIENT, asked], ["y", second], terminal.environment)
    assert got == code
    assert "SIGKILL" in said
    assert (child.poll() is None) == (second == "n")
