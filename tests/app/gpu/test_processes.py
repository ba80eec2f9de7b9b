import os
from pathlib import Path

import pytest

from app.gpu import processes
from app.gpu.processes import ProcessReader
from app.gpu.record import ProcessKind
from tests.fakes.household import Household, eventually
from tests.fakes.proc import FakeProc, page_bytes


def reader(proc: FakeProc, *, own_pid: int = 50) -> ProcessReader:
    return ProcessReader(own_pid=own_pid, own_uid=1000, root=proc.root)


def test_entry_holds_what_proc_says(proc: FakeProc) -> None:
    proc.process(60, parent=7, start_ticks=1234, arguments=["/opt/bin/serve", "--port", "1"], comm="serve", uid=0)
    entry = reader(proc).read().entries[60]
    assert (entry.parent_pid, entry.identity.start_ticks, entry.name) == (7, 1234, "serve")
    assert entry.command == "/opt/bin/serve --port 1"
    assert (entry.uid, entry.user, entry.role) == (0, "root", ProcessKind.APPLICATION)
    assert entry.anonymous_bytes == (100 - 20) * page_bytes()


def test_user_without_a_name_is_shown_by_number(proc: FakeProc) -> None:
    proc.process(60, uid=3_999_999)
    assert reader(proc).read().entries[60].user == "3999999"


def test_name_with_parentheses_and_blanks_is_read_whole(proc: FakeProc) -> None:
    proc.process(60, comm="a) S 1 (b", arguments=["x"])
    entry = reader(proc).read().entries[60]
    assert entry.name == "a) S 1 (b"
    assert entry.parent_pid == 1


def test_name_that_the_kernel_cut_is_completed(proc: FakeProc) -> None:
    proc.process(60, comm="text-generation", arguments=["/usr/bin/text-generation-launcher", "-v"])
    assert reader(proc).read().entries[60].name == "text-generation-launcher"


def test_escape_sequences_do_not_reach_the_terminal(proc: FakeProc) -> None:
    proc.process(60, comm="a\x1b[2Jb", arguments=["evil\x1b]0;title\x07\nsecond line"])
    entry = reader(proc).read().entries[60]
    assert entry.name.isprintable()
    assert entry.command.isprintable()


def test_facts_are_read_twice_and_then_kept(proc: FakeProc) -> None:
    proc.process(60, arguments=["parent"])
    proc_reader = reader(proc)
    proc_reader.read()
    # Between fork and exec a child still carries its parent's command line.
    proc.process(60, arguments=["child"])
    assert proc_reader.read().entries[60].command == "child"
    (proc.root / "60" / "cmdline").unlink()
    (proc.root / "60" / "status").unlink()
    assert proc_reader.read().entries[60].command == "child"


def test_memory_state_and_parent_stay_fresh(proc: FakeProc) -> None:
    proc.process(60)
    proc_reader = reader(proc)
    for _ in range(3):
        proc_reader.read()
    proc.process(60, parent=9, state="D", resident_pages=700, file_pages=100)
    entry = proc_reader.read().entries[60]
    assert (entry.parent_pid, entry.state, entry.anonymous_bytes) == (9, "D", 600 * page_bytes())


def test_reused_pid_is_read_anew(proc: FakeProc) -> None:
    proc.process(60, start_ticks=100, arguments=["old"])
    proc_reader = reader(proc)
    before = [proc_reader.read() for _ in range(3)][-1].entries[60].identity
    proc.process(60, start_ticks=200, arguments=["new"])
    table = proc_reader.read()
    assert table.entries[60].command == "new"
    assert table.find(before) is None


def test_renamed_process_is_read_anew(proc: FakeProc) -> None:
    proc.process(60, comm="sh", arguments=["sh", "-c", "exec serve"])
    proc_reader = reader(proc)
    for _ in range(3):
        proc_reader.read()
    proc.process(60, comm="serve", arguments=["serve"])
    assert proc_reader.read().entries[60].command == "serve"


def test_process_that_vanishes_while_we_read_is_left_out(proc: FakeProc) -> None:
    proc.process(60)
    (proc.root / "61").mkdir()
    assert set(reader(proc).read().entries) == {60}


def test_process_that_hides_its_command_is_listed(proc: FakeProc) -> None:
    proc.process(60)
    (proc.root / "60" / "cmdline").unlink()
    (proc.root / "60" / "cgroup").unlink()
    assert reader(proc).read().entries[60].command == ""


def test_tree_around_kvscope(proc: FakeProc) -> None:
    for pid, parent in {10: 1, 20: 10, 50: 20, 51: 50, 52: 51, 30: 10, 1: 0}.items():
        proc.process(pid, parent=parent)
    table = reader(proc).read()
    assert table.own_tree == {50, 51, 52}
    assert table.ancestors == {20, 10, 1}


def test_tree_with_a_loop_ends(proc: FakeProc) -> None:
    # Never seen at one moment, but the files are read one after the other.
    proc.process(50, parent=51)
    proc.process(51, parent=50)
    table = reader(proc).read()
    assert table.own_tree == {50, 51}


def test_real_proc_shows_this_process() -> None:
    entry = ProcessReader().read().entries[os.getpid()]
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert entry.identity.start_ticks == int(stat[19])
    assert entry.parent_pid == os.getppid()
    assert entry.uid == os.geteuid()
    assert entry.anonymous_bytes > 1 << 20


def test_real_child_is_in_the_own_tree_until_it_is_gone(household: Household) -> None:
    child = household.start("sleep", "600")
    proc_reader = ProcessReader()
    assert child.pid in proc_reader.read().own_tree
    child.kill()
    eventually(lambda: proc_reader.read().entries[child.pid].state == "Z")
    child.wait()
    assert child.pid not in proc_reader.read().entries


def test_who_has_not_run_costs_one_small_read(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who has, two: names, users and command lines are known."""
    for pid in range(60, 80):
        proc.process(pid)
    proc_reader = reader(proc)
    proc_reader.read()
    proc_reader.read()
    opened: list[str] = []
    read = processes._read
    monkeypatch.setattr(processes, "_read", lambda path: (opened.append(path), read(path))[1])
    first = proc_reader.read()
    assert sorted(opened) == sorted(f"{proc.root}/{pid}/stat" for pid in range(60, 80))
    opened.clear()
    proc.process(65, resident_pages=500)
    second = proc_reader.read()
    assert len(opened) == 21
    assert [pid for pid in first.entries if first.entries[pid] is not second.entries[pid]] == [65]
