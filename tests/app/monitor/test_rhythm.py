from app.monitor.rhythm import Rhythm
from tests.fakes.clock import FakeClock


def test_once_in_each_period() -> None:
    clock = FakeClock()
    rhythm = Rhythm(0.25, clock)
    turns = 0
    for _ in range(1000):
        turns += rhythm.take_turn()
        clock.advance(0.01)
    assert 40 <= turns <= 46
