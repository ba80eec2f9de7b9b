"""The arithmetic of the measurement of stalls."""

import pytest

from tests.bench.stalls import TICK_S, Gap, Lateness, split


def test_a_loop_in_time_is_never_late() -> None:
    gaps = [Gap(index * TICK_S, (index + 1) * TICK_S) for index in range(200)]
    late = Lateness.of(gaps)
    assert late.span_s == pytest.approx(1.0)
    assert (late.p99_ms, late.longest_ms) == pytest.approx((0, 0), abs=1e-6)


def test_a_stall_counts_for_every_moment_in_it() -> None:
    """100 ms of 1 s: a tenth of all moments wait, evenly from 0 to 100 ms."""
    gaps = [Gap(index * TICK_S, (index + 1) * TICK_S) for index in range(180)]
    late = Lateness.of([*gaps, Gap(0.9, 1.0 + TICK_S)])
    assert late.longest_ms == pytest.approx(100)
    assert late.p99_ms == pytest.approx(90, abs=2)
    assert late.p50_ms == 0


def test_gaps_belong_to_the_phase_in_which_most_of_them_lies() -> None:
    found = split([0.0, 1.0, 3.0, 3.5], [(0.0, "a"), (1.2, "b"), (3.1, "c")])
    assert found == {"a": [Gap(0, 1)], "b": [Gap(1, 3)], "c": [Gap(3, 3.5)]}


def test_nothing_measured_is_nothing() -> None:
    assert Lateness.of([]).longest_ms == 0
