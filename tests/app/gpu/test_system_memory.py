from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.gpu.errors import ProbeError
from app.gpu.process_table import ProcessEntry, ProcessTable
from app.gpu.processes import ProcessReader
from app.gpu.protect import Describer
from app.gpu.record import MemoryKind, MemorySample, ProcessIdentity, ProcessKind
from app.gpu.system_memory import MemInfo, SystemMemoryProbe, counted_once, sample_of
from tests.fakes.household import HOLDS_MEMORY, Household
from tests.fakes.proc import FakeProc, page_bytes

MIB = 1 << 20


def entry(pid: int, *, parent: int = 1, held: int, command: str) -> ProcessEntry:
    return ProcessEntry(
        identity=ProcessIdentity(pid, 1),
        parent_pid=parent,
        state="S",
        name=command,
        command=command,
        uid=1000,
        user="me",
        role=ProcessKind.APPLICATION,
        is_kernel_thread=False,
        anonymous_bytes=held,
    )


def table_of(entries: list[ProcessEntry]) -> ProcessTable:
    return ProcessTable.of({e.pid: e for e in entries}, own_pid=1, own_uid=1000)


@st.composite
def tables(draw: st.DrawFn) -> ProcessTable:
    pids = draw(st.lists(st.integers(2, 12), unique=True, max_size=10))
    entries = [
        entry(
            pid,
            parent=draw(st.integers(1, 12)),
            held=draw(st.integers(0, 4 << 30)),
            command=draw(st.sampled_from(["a", "b", ""])),
        )
        for pid in pids
    ]
    return table_of(entries)


@given(tables(), st.integers(1, 1 << 36), st.data())
def test_stack_adds_up_and_never_leaves_the_total(table: ProcessTable, total: int, data: st.DataObject) -> None:
    anonymous = data.draw(st.integers(0, total))
    memory = MemInfo(
        total_bytes=total,
        available_bytes=data.draw(st.integers(0, total)),
        anonymous_bytes=anonymous,
        shared_bytes=data.draw(st.integers(0, total - anonymous)),
    )
    sample = sample_of(table, memory, Describer(), time_s=0)
    held = [process.memory_bytes or 0 for process in sample.processes]
    bands = [*held, sample.shared_bytes, sample.unattributed_bytes, sample.free_bytes]
    assert min(bands) >= 0
    assert sum(bands) == sample.total_bytes == total
    assert sample.used_bytes + sample.free_bytes == total
    assert held == sorted(held, reverse=True)


@given(tables(), st.integers(0, 16 << 30))
def test_counting_once_only_ever_takes_away_what_is_too_much(table: ProcessTable, limit: int) -> None:
    holders = list(table)
    claims = [holder.anonymous_bytes for holder in holders]
    shares = counted_once(holders, table, limit)
    assert sum(shares) <= limit
    assert all(0 <= share <= claim for share, claim in zip(shares, claims, strict=True))
    if sum(claims) <= limit:
        assert shares == claims


def test_forked_workers_share_what_their_parent_holds() -> None:
    parent = entry(10, held=4000 * MIB, command="train")
    workers = [entry(11 + i, parent=10, held=4000 * MIB, command="train") for i in range(3)]
    stranger = entry(20, held=500 * MIB, command="editor")
    holders = [parent, *workers, stranger]
    shares = counted_once(holders, table_of(holders), 4500 * MIB)
    assert shares == [1000 * MIB] * 4 + [500 * MIB]


def test_programs_started_by_a_shell_are_no_family() -> None:
    shell = entry(10, held=10 * MIB, command="bash")
    programs = [entry(11 + i, parent=10, held=100 * MIB, command=f"program {i}") for i in range(2)]
    holders = [shell, *programs]
    assert counted_once(holders, table_of(holders), 1000 * MIB) == [10 * MIB, 100 * MIB, 100 * MIB]


def test_note_tells_that_forks_were_divided(proc: FakeProc) -> None:
    for pid, parent in ((60, 1), (61, 60)):
        proc.process(pid, parent=parent, comm="train", resident_pages=5000, file_pages=0)
    proc.meminfo(total_kib=40000, available_kib=10000, anonymous_kib=5000 * page_bytes() // 1024, shared_kib=0)
    sample = probe_of(proc).sample()
    assert [process.memory_bytes for process in sample.processes] == [2500 * page_bytes()] * 2
    assert "Forked" in sample.note


def probe_of(proc: FakeProc) -> SystemMemoryProbe:
    reader = ProcessReader(own_pid=50, own_uid=1000, root=proc.root)
    return SystemMemoryProbe(reader=reader, clock=lambda: 12.5, root=proc.root)


def test_sample_of_a_small_machine(proc: FakeProc) -> None:
    page_kib = page_bytes() // 1024
    proc.process(60, resident_pages=1100, file_pages=100)
    proc.process(61, resident_pages=3000, file_pages=1000)
    proc.kernel_thread(7)
    proc.process(62, state="Z", resident_pages=0, file_pages=0)
    proc.meminfo(
        total_kib=100_000 * page_kib, available_kib=90_000 * page_kib, anonymous_kib=3500 * page_kib, shared_kib=44
    )
    sample = probe_of(proc).sample()
    assert (sample.time_s, sample.memory, sample.device) == (12.5, MemoryKind.SYSTEM, "System memory")
    assert [(p.identity.pid, p.memory_bytes) for p in sample.processes] == [
        (61, 2000 * page_bytes()),
        (60, 1000 * page_bytes()),
    ]
    assert sample.used_bytes == 10_000 * page_bytes()
    assert sample.shared_bytes == 44 << 10
    assert sample.unattributed_bytes == 7000 * page_bytes() - (44 << 10)
    assert sample.note == ""


def test_pages_that_cpus_keep_at_hand_are_free(proc: FakeProc) -> None:
    proc.meminfo(total_kib=100_000, available_kib=40_000, anonymous_kib=0, shared_kib=0)
    before = probe_of(proc).sample().free_bytes
    (proc.root / "zoneinfo").write_text(
        "Node 0, zone   Normal\n  pages free     5000\n        low      12872\n  pagesets\n"
        "    cpu: 0\n              count:    700\n              high:     9841\n"
        "    cpu: 1\n              count:    300\n              high:     9841\n  node_unreclaimable:  0\n"
    )
    assert probe_of(proc).sample().free_bytes - before == 1000 * page_bytes()


@pytest.mark.parametrize("text", ["", "MemTotal: x kB\n", "MemTotal: 5 kB\n"])
def test_unreadable_memory_is_told(proc: FakeProc, text: str) -> None:
    (proc.root / "meminfo").write_text(text)
    with pytest.raises(ProbeError, match="how much memory"):
        probe_of(proc).sample()


def test_missing_proc_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="how much memory"):
        SystemMemoryProbe(root=tmp_path / "nowhere").sample()


def assert_truthful(sample: MemorySample) -> None:
    held = sum(process.memory_bytes or 0 for process in sample.processes)
    assert held + sample.shared_bytes + sample.unattributed_bytes == sample.used_bytes
    assert sample.used_bytes + sample.free_bytes == sample.total_bytes
    assert sample.unattributed_bytes >= 0


def test_real_child_is_seen_with_what_it_touched(household: Household) -> None:
    child = household.python(HOLDS_MEMORY.format(mib=64))
    sample = SystemMemoryProbe().sample()
    assert_truthful(sample)
    (row,) = [process for process in sample.processes if process.identity.pid == child.pid]
    assert row.memory_bytes is not None
    assert 60 * MIB < row.memory_bytes < 110 * MIB


FORKS = """
import os, signal
held = b"x" * (64 << 20)
for _ in range(6):
    if os.fork() == 0:
        signal.pause()
print("ready", flush=True)
signal.pause()
"""


def test_real_forks_are_counted_once(household: Household) -> None:
    parent = household.python(FORKS)
    family = {parent.pid, *(child.pid for child in household.children_of(parent.pid))}
    assert len(family) == 7
    sample = SystemMemoryProbe().sample()
    held = sum(p.memory_bytes or 0 for p in sample.processes if p.identity.pid in family)
    raw = sum(e.anonymous_bytes for e in household.table() if e.pid in family)
    assert raw > 7 * 60 * MIB
    assert held < raw // 2
    assert_truthful(sample)
