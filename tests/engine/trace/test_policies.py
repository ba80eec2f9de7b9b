"""Steps of static and continuous batching against a simulation that moves one token at a time."""

from hypothesis import given
from hypothesis import strategies as st

from engine.trace.policies import continuous_steps, static_steps

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=30)
SLOTS = st.integers(1, 8)


def simulate(lengths: list[int], slots: int, *, wait_for_the_group: bool) -> int:
    """Every step gives each running request one token; a free slot is filled before the step, or with all others."""
    waiting, running, steps = list(lengths), [], 0
    while waiting or running:
        if not running or not wait_for_the_group:
            while waiting and len(running) < slots:
                running.append(waiting.pop(0))
        running = [left - 1 for left in running if left > 1]
        steps += 1
    return steps


@given(lengths=LENGTHS, slots=SLOTS)
def test_static(lengths: list[int], slots: int) -> None:
    assert static_steps(lengths, slots) == simulate(lengths, slots, wait_for_the_group=True)


@given(lengths=LENGTHS, slots=SLOTS)
def test_continuous(lengths: list[int], slots: int) -> None:
    found = continuous_steps(lengths, slots)
    assert found == simulate(lengths, slots, wait_for_the_group=False)
    assert found <= static_steps(lengths, slots)
