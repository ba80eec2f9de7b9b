from app.gpu.record import MemoryKind, MemorySample, ProcessIdentity
from app.gpu.recovery import Recovery
from tests.fakes.probe import GIB, process_memory

ENDED = ProcessIdentity(5, 1)


def sample(*, free: int, held: dict[int, int | None]) -> MemorySample:
    return MemorySample(
        time_s=0,
        memory=MemoryKind.SYSTEM,
        device="System memory",
        total_bytes=64 * GIB,
        used_bytes=64 * GIB - free,
        free_bytes=free,
        processes=tuple(process_memory(pid=pid, memory_bytes=count) for pid, count in held.items()),
    )


def test_growth_of_free_memory_came_back() -> None:
    recovery = Recovery(sample(free=10 * GIB, held={5: 3 * GIB, 6: GIB}), [ENDED])
    recovery.see(sample(free=13 * GIB, held={6: GIB}))
    assert recovery.returned_bytes == 3 * GIB
    assert (recovery.free_before_bytes, recovery.free_after_bytes) == (10 * GIB, 13 * GIB)


def test_what_others_took_meanwhile_came_back_all_the_same() -> None:
    recovery = Recovery(sample(free=10 * GIB, held={5: 3 * GIB, 6: GIB}), [ENDED])
    recovery.see(sample(free=11 * GIB, held={6: 2 * GIB, 7: GIB}))
    assert recovery.returned_bytes == 3 * GIB
    assert recovery.taken_by_others_bytes == 2 * GIB


def test_what_others_gave_back_is_not_claimed() -> None:
    recovery = Recovery(sample(free=10 * GIB, held={5: 3 * GIB, 6: 4 * GIB}), [ENDED])
    recovery.see(sample(free=14 * GIB, held={5: 3 * GIB}))
    assert recovery.returned_bytes == 0


def test_memory_that_nobody_owns_now_has_not_come_back() -> None:
    recovery = Recovery(sample(free=10 * GIB, held={5: 3 * GIB}), [ENDED])
    recovery.see(sample(free=10 * GIB, held={}))
    assert recovery.returned_bytes == 0


def test_memory_of_a_process_started_again_has_not_come_back() -> None:
    recovery = Recovery(sample(free=10 * GIB, held={5: 3 * GIB}), [ENDED])
    recovery.see(sample(free=10 * GIB, held={9: 3 * GIB}), started_again=[ProcessIdentity(9, 1)])
    assert recovery.returned_bytes == 0


def test_returned_is_never_negative_and_unknown_counts_as_nothing() -> None:
    recovery = Recovery(sample(free=10 * GIB, held={5: None}), [ENDED])
    recovery.see(sample(free=8 * GIB, held={6: None}))
    assert recovery.returned_bytes == 0
