"""The mailbox: order, one wake per drain, nothing lost between threads."""

import threading

from app.bridge.mailbox import Mailbox
from engine.events import LoadProgress


def progress(number: int) -> LoadProgress:
    return LoadProgress(str(number), 0.0)


def test_it_wakes_only_when_it_was_empty() -> None:
    wakes: list[int] = []
    box = Mailbox(lambda: wakes.append(1))
    box.append(progress(1))
    box.append(progress(2))
    assert len(wakes) == 1
    assert box.drain() == [progress(1), progress(2)]
    box.append(progress(3))
    assert len(wakes) == 2


def test_draining_an_empty_box_gives_nothing() -> None:
    assert Mailbox(lambda: None).drain() == []


def test_nothing_is_lost_or_reordered_between_threads() -> None:
    count = 5_000
    woken = threading.Event()
    box = Mailbox(woken.set)
    seen: list[str] = []
    writer = threading.Thread(target=lambda: [box.append(progress(number)) for number in range(count)])
    writer.start()
    while len(seen) < count:
        assert woken.wait(10), "an event arrived without a wake"
        woken.clear()
        seen.extend(event.stage for event in box.drain() if isinstance(event, LoadProgress))
    writer.join()
    assert seen == [str(number) for number in range(count)]
