"""Ending real processes, with a clock and a memory that obey the test."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.gpu.errors import ProbeError
from app.gpu.journal import ReleaseJournal
from app.gpu.process_table import ProcessTable
from app.gpu.record import ProcessIdentity, ProcessMemory, ReleaseReport, StopOutcome, StopResult
from app.gpu.release import Release, ReleaseTimes, run_release
from app.gpu.system_memory import SystemMemoryProbe
from tests.fakes.clock import FakeClock
from tests.fakes.household import HOLDS_MEMORY, IGNORES_SIGTERM, Household, eventually
from tests.fakes.probe import GIB, FakeProbe, process_memory

MIB = 1 << 20
LONG_S = 20


class Scene:
    """One release over a household."""

    def __init__(self, household: Household, journal: ReleaseJournal) -> None:
        self.household = household
        self.journal = journal
        self.clock = FakeClock()
        self.probe = FakeProbe()
        self.times = ReleaseTimes()
        self._releases: list[Release] = []

    def release(self, *targets: ProcessMemory) -> Release:
        release = Release(
            targets,
            self.probe,
            read_table=lambda: self.table(),
            journal=self.journal,
            times=self.times,
            clock=self.clock,
        )
        self._releases.append(release)
        return release

    def table(self) -> ProcessTable:
        return self.household.table()

    def close(self) -> None:
        for release in self._releases:
            release.close()

    def until_ended(self, release: Release) -> ReleaseReport:
        """Polls until nobody is waited for; time stands still."""
        return eventually(lambda: _none_waiting(release.poll()))

    def later(self, release: Release, seconds: float) -> ReleaseReport:
        self.clock.advance(seconds)
        return release.poll()


def _none_waiting(report: ReleaseReport) -> ReleaseReport | None:
    return None if any(result.outcome is StopOutcome.WAITING for result in report.results) else report


@pytest.fixture
def scene(household: Household, tmp_path: Path) -> Iterator[Scene]:
    stage = Scene(household, ReleaseJournal(tmp_path / "released.jsonl"))
    yield stage
    stage.close()


def only(report: ReleaseReport) -> StopResult:
    (result,) = report.results
    return result


# --- the six cases ---


def test_polite_process_exits_on_sigterm_and_the_bytes_are_counted(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    release = scene.release(scene.household.row(child.pid, 2 * GIB))
    before = scene.probe.free_bytes
    first = release.start()
    assert not first.finished
    assert first.deadline_s == scene.times.grace_s
    ended = scene.until_ended(release)
    assert only(ended).outcome is StopOutcome.EXITED
    assert child.wait() == -signal.SIGTERM
    scene.probe.free_bytes += 2 * GIB
    report = scene.later(release, 1.5)
    assert report.finished
    assert (report.promised_bytes, report.returned_bytes) == (2 * GIB, 2 * GIB)
    assert (report.free_before_bytes, report.free_after_bytes) == (before, before + 2 * GIB)
    assert report.note == ""


def test_process_that_ignores_sigterm_lives_until_the_second_consent(scene: Scene) -> None:
    child = scene.household.python(IGNORES_SIGTERM)
    release = scene.release(scene.household.row(child.pid, GIB))
    assert only(release.start()).outcome is StopOutcome.WAITING
    assert not scene.later(release, scene.times.grace_s - 0.5).finished
    report = scene.later(release, 1)
    assert report.finished
    assert only(report).outcome is StopOutcome.STILL_RUNNING
    assert "SIGTERM" in only(report).reason
    assert report.promised_bytes == 0
    assert child.poll() is None

    again = release.kill([only(report).identity])
    assert again.deadline_s == scene.times.kill_wait_s
    ended = scene.until_ended(release)
    assert only(ended).outcome is StopOutcome.KILLED
    assert child.wait() == -signal.SIGKILL
    scene.probe.free_bytes += GIB
    final = scene.later(release, 1.5)
    assert final.finished
    assert (final.promised_bytes, final.returned_bytes) == (GIB, GIB)


def test_reused_pid_is_refused_and_the_new_owner_lives(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    row = scene.household.row(child.pid)
    forged = replace(row, identity=replace(row.identity, start_ticks=row.identity.start_ticks - 1))
    report = scene.release(forged).start()
    assert report.finished
    assert only(report).outcome is StopOutcome.REFUSED
    assert "now belongs to another process (sleep)" in only(report).reason
    assert child.poll() is None


def test_ancestor_is_refused(household: Household, scene: Scene) -> None:
    shell = household.start("sh", "-c", "sleep 600 & echo $!; wait")
    assert shell.stdout is not None
    inner = int(shell.stdout.readline())
    row = household.row(shell.pid)
    household.kvscope_pid = inner
    report = scene.release(row).start()
    assert only(report).outcome is StopOutcome.REFUSED
    assert "started from" in only(report).reason
    assert shell.poll() is None


def test_child_that_its_parent_starts_again_is_reported(scene: Scene) -> None:
    shell = scene.household.start("sh", "-c", "while :; do sleep 611; done")
    child = eventually(lambda: _running_as(scene.household, shell.pid, "sleep 611"))
    release = scene.release(scene.household.row(child, GIB))
    release.start()
    scene.until_ended(release)
    successor = eventually(lambda: _running_as(scene.household, shell.pid, "sleep 611", but=child))
    scene.probe.free_bytes += GIB
    result = only(scene.later(release, 1.5))
    assert result.outcome is StopOutcome.EXITED
    assert f"came back as PID {successor}" in result.reason
    assert f"PID {shell.pid} (sh)" in result.reason


def _running_as(household: Household, parent: int, command: str, *, but: int = 0) -> int:
    found = [e.pid for e in household.children_of(parent) if e.command == command and e.pid != but]
    return found[0] if found else 0


def test_orphan_is_ended_like_anybody(scene: Scene) -> None:
    shell = scene.household.start("sh", "-c", "sleep 600 & echo $!; wait")
    assert shell.stdout is not None
    orphan = int(shell.stdout.readline())
    row = scene.household.row(orphan)
    shell.kill()
    shell.wait()
    eventually(lambda: scene.household.entry(orphan).parent_pid != shell.pid)
    release = scene.release(row)
    release.start()
    assert only(scene.until_ended(release)).outcome is StopOutcome.EXITED


# --- protection at the moment of the signal ---


def test_own_child_is_refused(household: Household, scene: Scene) -> None:
    child = household.start("sleep", "600")
    row = household.row(child.pid)
    household.kvscope_pid = os.getpid()
    assert only(scene.release(row).start()).outcome is StopOutcome.REFUSED
    assert child.poll() is None


def test_protection_that_came_after_the_listing_counts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    child = scene.household.start("sleep", "600")
    row = scene.household.row(child.pid)
    assert row.protected_because == ""

    def table_with_another_owner() -> ProcessTable:
        table = scene.household.table()
        entries = {**table.entries, child.pid: replace(table.entries[child.pid], uid=4_000_000, user="alice")}
        return ProcessTable.of(entries, own_pid=table.own_pid, own_uid=table.own_uid)

    monkeypatch.setattr(scene, "table", table_with_another_owner)
    result = only(scene.release(row).start())
    assert result.outcome is StopOutcome.REFUSED
    assert "alice" in result.reason
    assert child.poll() is None


def test_protection_is_asked_again_before_sigkill(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    child = scene.household.python(IGNORES_SIGTERM)
    release = scene.release(scene.household.row(child.pid))
    release.start()
    report = scene.later(release, LONG_S)
    monkeypatch.setattr(scene.household, "kvscope_pid", child.pid)
    assert only(release.kill([only(report).identity])).outcome is StopOutcome.REFUSED
    assert child.poll() is None


def _never(*_: object) -> None:
    pytest.fail("a signal was about to be sent")


@pytest.mark.parametrize("pid", [1, 2])
def test_first_process_and_kernel_threads_are_refused(scene: Scene, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "pidfd_send_signal", _never)
    table = scene.table()
    if pid not in table.entries or (pid == 2 and not table.entries[2].is_kernel_thread):
        pytest.skip(f"PID {pid} is nothing special here")
    assert only(scene.release(scene.household.row(pid)).start()).outcome is StopOutcome.REFUSED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_other_users_process_is_refused_even_to_root(scene: Scene) -> None:
    child = scene.household.start("sleep", "600", user=65534)
    result = only(scene.release(scene.household.row(child.pid)).start())
    assert result.outcome is StopOutcome.REFUSED
    assert "owned by" in result.reason
    assert child.poll() is None


# --- races and trouble ---


def test_process_that_exits_between_listing_and_signal_was_already_gone(scene: Scene) -> None:
    collected = scene.household.start("sleep", "600")
    zombie = scene.household.start("sleep", "600")
    rows = [scene.household.row(child.pid, GIB) for child in (collected, zombie)]
    for child in (collected, zombie):
        child.kill()
    collected.wait()
    eventually(lambda: scene.household.entry(zombie.pid).state == "Z")
    report = scene.release(*rows).start()
    assert [result.outcome for result in report.results] == [StopOutcome.ALREADY_GONE] * 2
    assert report.finished
    assert report.promised_bytes == 0


def test_process_that_exits_between_pin_and_signal_was_already_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = scene.household.start("sleep", "600")
    row = scene.household.row(child.pid)

    def table_after_it_died() -> ProcessTable:
        table = scene.household.table()
        child.kill()
        child.wait()
        return table

    monkeypatch.setattr(scene, "table", table_after_it_died)
    assert only(scene.release(row).start()).outcome is StopOutcome.ALREADY_GONE


def test_pid_of_nobody_was_already_gone(scene: Scene) -> None:
    nobody = process_memory(pid=(1 << 22) - 1, start_ticks=5)
    assert only(scene.release(nobody).start()).outcome is StopOutcome.ALREADY_GONE


def test_thread_id_is_refused(household: Household, scene: Scene) -> None:
    code = (
        "import signal, threading; t = threading.Thread(target=threading.Event().wait, daemon=True); t.start();"
        "print(t.native_id, flush=True); signal.pause()"
    )
    child = household.start(sys.executable, "-c", code)
    assert child.stdout is not None
    thread_id = int(child.stdout.readline())
    result = only(scene.release(process_memory(pid=thread_id)).start())
    assert result.outcome is StopOutcome.REFUSED
    assert child.poll() is None


def test_same_process_named_twice_is_ended_once(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    row = scene.household.row(child.pid, GIB)
    release = scene.release(row, row)
    assert len(release.start().results) == 1
    assert scene.until_ended(release).promised_bytes == GIB


def test_one_refusal_does_not_stop_the_others(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    release = scene.release(scene.household.row(scene.household.kvscope.pid), scene.household.row(child.pid))
    release.start()
    report = scene.until_ended(release)
    assert [result.outcome for result in report.results] == [StopOutcome.REFUSED, StopOutcome.EXITED]


def test_suspended_process_is_named_as_such(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    os.kill(child.pid, signal.SIGSTOP)
    eventually(lambda: scene.household.entry(child.pid).state == "T")
    release = scene.release(scene.household.row(child.pid))
    release.start()
    assert "suspended" in only(scene.later(release, LONG_S)).reason


def test_exit_after_the_wait_is_noticed_and_measured(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    os.kill(child.pid, signal.SIGSTOP)
    release = scene.release(scene.household.row(child.pid, GIB))
    release.start()
    assert scene.later(release, LONG_S).finished
    os.kill(child.pid, signal.SIGCONT)
    report = eventually(lambda: None if (found := release.poll()).finished else found)
    assert isinstance(report, ReleaseReport)
    assert only(report).outcome is StopOutcome.EXITED
    scene.probe.free_bytes += GIB
    final = scene.later(release, 1.5)
    assert final.finished
    assert final.returned_bytes == GIB


def test_kill_spares_those_that_were_not_named(scene: Scene) -> None:
    stubborn = [scene.household.python(IGNORES_SIGTERM) for _ in range(2)]
    release = scene.release(*(scene.household.row(child.pid) for child in stubborn))
    release.start()
    report = scene.later(release, LONG_S)
    release.kill([report.results[0].identity, ProcessIdentity(1, 0)])
    after = scene.until_ended(release)
    assert [result.outcome for result in after.results] == [StopOutcome.KILLED, StopOutcome.STILL_RUNNING]
    assert stubborn[1].poll() is None


def test_kernel_that_does_not_let_go_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    child = scene.household.python(IGNORES_SIGTERM)
    release = scene.release(scene.household.row(child.pid))
    release.start()
    report = scene.later(release, LONG_S)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda fd, number: None)
    release.kill([only(report).identity])
    assert "kernel" in only(scene.later(release, LONG_S)).reason


# --- measuring ---


def ended_with(scene: Scene, promised: int | None) -> Release:
    child = scene.household.start("sleep", "600")
    release = scene.release(scene.household.row(child.pid, promised))
    release.start()
    scene.until_ended(release)
    return release


def test_memory_that_comes_late_is_waited_for(scene: Scene) -> None:
    release = ended_with(scene, GIB)
    scene.probe.free_bytes += GIB // 2
    assert not scene.later(release, 4).finished
    scene.probe.free_bytes += int(0.41 * GIB)
    report = scene.later(release, 1)
    assert report.finished
    assert report.note == ""


def test_memory_that_does_not_come_is_told(scene: Scene) -> None:
    release = ended_with(scene, GIB)
    scene.probe.free_bytes += GIB // 4
    assert not scene.later(release, 9).finished
    report = scene.later(release, 2)
    assert report.finished
    assert only(report).outcome is StopOutcome.EXITED
    assert report.returned_bytes == GIB // 4
    assert "Only 256 of the promised 1,024 MiB" in report.note


def test_small_promise_drowns_in_noise(scene: Scene) -> None:
    release = ended_with(scene, 5 * MIB)
    scene.probe.free_bytes -= 3 * MIB
    report = scene.later(release, 1.5)
    assert report.finished
    assert report.note == ""


def test_unknown_memory_promises_nothing_and_counts_what_comes(scene: Scene) -> None:
    release = ended_with(scene, None)
    scene.probe.free_bytes += GIB
    report = scene.later(release, 1.5)
    assert report.finished
    assert (report.promised_bytes, report.returned_bytes) == (0, GIB)


def test_memory_is_not_looked_at_with_every_poll(scene: Scene) -> None:
    release = ended_with(scene, GIB)
    before = scene.probe.looks
    for _ in range(100):
        scene.later(release, 0.01)
    assert scene.probe.looks - before <= 4


def test_elapsed_time_stands_still_at_the_end(scene: Scene) -> None:
    release = ended_with(scene, 0)
    report = scene.later(release, 1.5)
    assert report.finished
    assert scene.later(release, 100).elapsed_s == report.elapsed_s == 1.5


def test_card_that_does_not_answer_at_the_start_lets_everybody_live(scene: Scene) -> None:
    child = scene.household.start("sleep", "600")
    scene.probe.broken = True
    with pytest.raises(ProbeError):
        scene.release(scene.household.row(child.pid)).start()
    assert child.poll() is None


def test_card_that_fails_meanwhile_is_told_and_asked_again(scene: Scene) -> None:
    release = ended_with(scene, GIB)
    scene.probe.broken = True
    assert "stopped answering" in scene.later(release, 1.5).note
    scene.probe.broken = False
    scene.probe.free_bytes += GIB
    report = scene.later(release, 1)
    assert report.finished
    assert report.note == ""


# --- what stays ---


def journal_of(scene: Scene) -> list[dict[str, object]]:
    return [json.loads(line) for line in scene.journal.path.read_text().splitlines()]


def test_each_action_is_one_line_in_the_journal(scene: Scene) -> None:
    child = scene.household.python(IGNORES_SIGTERM)
    row = scene.household.row(child.pid, GIB)
    release = scene.release(row, scene.household.row(scene.household.kvscope.pid))
    release.start()
    report = scene.later(release, LONG_S)
    release.kill([report.results[0].identity])
    scene.until_ended(release)
    scene.probe.free_bytes += GIB
    scene.later(release, 1.5)
    release.close()
    release.close()
    said = [(line["pid"], line["means"], line["outcome"]) for line in journal_of(scene)]
    assert said == [(child.pid, "SIGTERM", "still_running"), (child.pid, "SIGKILL", "killed")]
    last = journal_of(scene)[-1]
    assert last["start_ticks"] == row.identity.start_ticks
    assert last["command"] == row.command
    assert last["free_after_bytes"] == last["free_before_bytes"] + GIB  # type: ignore[operator]


def test_release_that_is_closed_early_is_in_the_journal(scene: Scene) -> None:
    child = scene.household.python(IGNORES_SIGTERM)
    release = scene.release(scene.household.row(child.pid))
    release.start()
    release.close()
    assert [line["outcome"] for line in journal_of(scene)] == ["waiting"]


def test_journal_that_cannot_be_written_does_not_stop_the_release(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    scene.journal = ReleaseJournal(tmp_path / "file" / "released.jsonl")
    release = ended_with(scene, 0)
    report = scene.later(release, 1.5)
    assert only(report).outcome is StopOutcome.EXITED
    assert "journal" in report.note


def test_no_file_descriptor_is_left(scene: Scene) -> None:
    before = set(os.listdir("/proc/self/fd"))
    release = ended_with(scene, 0)
    scene.later(release, 1.5)
    release.close()
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1  # the pipe of the child that was started


# --- with the machine's own memory and clock ---


def released_for_real(household: Household) -> ReleaseReport:
    child = household.python(HOLDS_MEMORY.format(mib=300))
    probe = SystemMemoryProbe()
    (row,) = [process for process in probe.sample().processes if process.identity.pid == child.pid]
    with Release([row], probe, read_table=household.table) as release:
        report = run_release(release, may_kill=lambda _: False)
    assert child.wait() == -signal.SIGTERM
    return report


def test_most_of_the_memory_of_a_real_process_comes_back(household: Household) -> None:
    report = released_for_real(household)
    assert report.finished
    assert only(report).outcome is StopOutcome.EXITED
    assert report.promised_bytes >= 300 * MIB
    assert report.returned_bytes >= 0.9 * report.promised_bytes


def test_blocking_run_kills_only_with_consent(household: Household) -> None:
    child = household.python(IGNORES_SIGTERM)
    asked: list[ReleaseReport] = []

    def no(report: ReleaseReport) -> bool:
        asked.append(report)
        return False

    times = ReleaseTimes(grace_s=0.2, settle_s=0, look_period_s=0)
    with Release([household.row(child.pid)], FakeProbe(), read_table=household.table, times=times) as release:
        report = run_release(release, may_kill=no)
    assert only(report).outcome is StopOutcome.STILL_RUNNING
    assert len(asked) == 1
    assert child.poll() is None
    with Release([household.row(child.pid)], FakeProbe(), read_table=household.table, times=times) as release:
        report = run_release(release, may_kill=lambda _: True)
    assert only(report).outcome is StopOutcome.KILLED
    assert child.wait() == -signal.SIGKILL
