import os

import pytest

from app.gpu.processes import ProcessReader
from app.gpu.protect import Describer, described, kind_of, not_visible, protection_of
from app.gpu.record import ProcessKind, ProcessMemory
from tests.fakes.household import Household, eventually
from tests.fakes.proc import FakeProc


@pytest.fixture
def machine(proc: FakeProc) -> FakeProc:
    proc.process(1, parent=0, comm="init", uid=0)
    proc.process(10, comm="bash")
    proc.process(50, parent=10, comm="kvscope")
    return proc


def reason(proc: FakeProc, pid: int, *, own_uid: int = 1000) -> str:
    table = ProcessReader(own_pid=50, own_uid=own_uid, root=proc.root).read()
    return protection_of(table.entries[pid], table)


def test_plain_process_of_this_user_may_be_ended(machine: FakeProc) -> None:
    machine.process(60, parent=10, comm="python3")
    assert reason(machine, 60) == ""


def test_kvscope_its_children_and_its_ancestors_are_protected(machine: FakeProc) -> None:
    machine.process(51, parent=50)
    assert "KVScope itself" in reason(machine, 50)
    assert "KVScope" in reason(machine, 51)
    assert "started from" in reason(machine, 10)


def test_first_process_and_kernel_threads_are_protected(machine: FakeProc) -> None:
    machine.kernel_thread(7)
    assert "PID 1" in reason(machine, 1)
    assert "kernel thread" in reason(machine, 7)


def test_user_process_may_have_pid_2_in_a_container(machine: FakeProc) -> None:
    machine.process(2, comm="python3")
    machine.process(3, parent=2, comm="python3")
    assert reason(machine, 2) == ""
    assert reason(machine, 3) == ""


@pytest.mark.parametrize("own_uid", [1000, 0], ids=["as a user", "as root"])
def test_other_users_process_is_protected_and_the_user_named(machine: FakeProc, own_uid: int) -> None:
    machine.process(60, uid=3_999_999)
    text = reason(machine, 60, own_uid=own_uid)
    assert "3999999" in text
    assert "ask" in text


@pytest.mark.parametrize(
    ("comm", "exe"),
    [("gnome-session-b", "/usr/libexec/gnome-session-binary"), ("renamed", "/usr/bin/Xwayland"), ("sway", None)],
)
def test_desktop_is_protected_by_name_or_by_program(machine: FakeProc, comm: str, exe: str | None) -> None:
    machine.process(60, comm=comm, exe=exe)
    assert "desktop" in reason(machine, 60)


def test_updated_program_is_still_known(machine: FakeProc) -> None:
    machine.process(60, comm="renamed", arguments=["renamed"], exe="/usr/bin/kwin_wayland (deleted)")
    assert "desktop" in reason(machine, 60)


def test_zombie_is_protected_and_its_parent_named(machine: FakeProc) -> None:
    machine.process(60, parent=10, state="Z", resident_pages=0)
    assert "exited" in reason(machine, 60)
    assert "PID 10" in reason(machine, 60)


def test_kind_seen_from_here(machine: FakeProc) -> None:
    machine.process(51, parent=50, comm="ollama")
    machine.process(60, uid=4242, comm="python3")
    machine.process(61, uid=4242, comm="ollama")
    table = ProcessReader(own_pid=50, own_uid=1000, root=machine.root).read()
    kinds = {pid: kind_of(entry, table) for pid, entry in table.entries.items()}
    assert kinds[51] is ProcessKind.OWN
    assert kinds[60] is ProcessKind.OTHER_USER
    assert kinds[61] is ProcessKind.MODEL_SERVER
    assert kinds[10] is ProcessKind.APPLICATION


def test_pid_of_another_container_is_never_offered() -> None:
    row = not_visible(4242, None)
    assert row.protected_because
    assert row.memory_bytes is None
    assert row.kind is ProcessKind.UNKNOWN


def test_unknown_memory_stays_unknown(machine: FakeProc) -> None:
    table = ProcessReader(own_pid=50, own_uid=1000, root=machine.root).read()
    assert described(table.entries[10], table, None).memory_bytes is None


def test_real_machine_protects_pid_1_kernel_threads_and_other_users(household: Household) -> None:
    table = household.table()
    assert protection_of(table.entries[1], table)
    for entry in table:
        if entry.is_kernel_thread or entry.uid != os.geteuid():
            assert protection_of(entry, table)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_root_does_not_end_what_belongs_to_somebody_else(household: Household) -> None:
    child = household.start("sleep", "600", user=65534)
    table = household.table()
    assert "ask them" in protection_of(table.entries[child.pid], table)


def test_real_zombie(household: Household) -> None:
    child = household.start("true")
    eventually(lambda: household.entry(child.pid).state == "Z")
    assert "exited" in protection_of(household.entry(child.pid), household.table())


def test_who_has_not_changed_is_described_once(machine: FakeProc) -> None:
    machine.process(60, parent=10, comm="python3")
    table_reader = ProcessReader(own_pid=50, own_uid=1000, root=machine.root)
    table_reader.read()
    describer = Describer()

    def look() -> dict[int, ProcessMemory]:
        table = table_reader.read()
        return {each.identity.pid: each for each in describer.describe([(entry, 5) for entry in table], table)}

    first, second = look(), look()
    assert all(first[pid] is second[pid] for pid in first)
    machine.process(60, parent=10, comm="python3", resident_pages=700)
    third = look()
    assert [pid for pid in first if third[pid] is not first[pid]] == [60]


def test_another_place_in_the_tree_is_another_reason(machine: FakeProc) -> None:
    """The same process, unchanged, may become a part of KVScope's family when one between them changes."""
    machine.process(60, parent=10, comm="middle")
    machine.process(61, parent=60, comm="python3")
    table_reader = ProcessReader(own_pid=50, own_uid=1000, root=machine.root)
    table_reader.read()
    describer = Describer()

    def why() -> str:
        table = table_reader.read()
        described = describer.describe([(entry, 5) for entry in table], table)
        return next(each.protected_because for each in described if each.identity.pid == 61)

    assert why() == ""
    machine.process(60, parent=50, comm="middle")
    assert "KVScope" in why()
