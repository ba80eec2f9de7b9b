"""The arithmetic of a card's sample against a slow twin that reads like the rules."""

from hypothesis import given
from hypothesis import strategies as st

from app.gpu.process_table import ProcessTable
from app.gpu.vram import Claim, DeviceMemory, is_garbled, joined_by_pid, sample_of

TOTAL = 1 << 34
NOBODY = ProcessTable.of({}, own_pid=1, own_uid=1000)

claims = st.lists(
    st.builds(
        Claim,
        pid=st.integers(0, 6) | st.integers(1 << 22, (1 << 22) + 3),
        memory_bytes=st.none() | st.integers(4096, TOTAL) | st.integers(TOTAL + 1, 1 << 64),
    ),
    max_size=12,
)


@given(claims)
def test_join_follows_the_rules(rows: list[Claim]) -> None:
    joined = joined_by_pid(rows, TOTAL)
    assert set(joined) == {row.pid for row in rows} - {0}
    for pid, held in joined.items():
        said = [row.memory_bytes for row in rows if row.pid == pid]
        credible = [count for count in said if count is not None and count <= TOTAL]
        assert held == (max(credible) if credible else None)


@given(claims, st.integers(0, TOTAL))
def test_sample_adds_up(rows: list[Claim], used_bytes: int) -> None:
    memory = DeviceMemory(TOTAL, used_bytes, TOTAL - used_bytes, 0)
    sample = sample_of("Card", memory, rows, NOBODY, time_s=1.5)
    known = sum(process.memory_bytes or 0 for process in sample.processes)
    assert known + sample.unattributed_bytes == sample.used_bytes
    assert sample.used_bytes + sample.reserved_bytes + sample.free_bytes == sample.total_bytes
    sizes = [-1 if p.memory_bytes is None else p.memory_bytes for p in sample.processes]
    assert sizes == sorted(sizes, reverse=True)


def test_swapped_structure_is_recognised_and_left_out() -> None:
    # The PID stands where the bytes belong and the other way round.
    rows = [Claim(pid=812_646_400, memory_bytes=2001), Claim(pid=17, memory_bytes=1 << 30)]
    assert is_garbled(rows)
    sample = sample_of("Card", DeviceMemory(TOTAL, 1 << 31, TOTAL - (1 << 31), 0), rows, NOBODY, time_s=0)
    assert sample.processes == ()
    assert sample.unattributed_bytes == 1 << 31
    assert "garbled" in sample.note


def test_large_pid_with_believable_memory_is_not_garbled() -> None:
    assert not is_garbled([Claim(pid=(1 << 22) + 1, memory_bytes=1 << 30), Claim(pid=5, memory_bytes=100)])
    assert not is_garbled([Claim(pid=(1 << 22) + 1, memory_bytes=None)])
