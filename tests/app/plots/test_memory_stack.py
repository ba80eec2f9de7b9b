"""The drawn stack: colours, gaps, scale, words."""

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.gpu.record import ProcessIdentity, ProcessKind
from app.plots.colours import ColourBook
from app.plots.memory_history import BandRole
from app.plots.memory_stack import PROCESS_COLOURS, ROLE_COLOURS, SHARED_COLOUR, MemoryStack
from app.theme import OWN_COLOUR, Theme
from tests.app.plots.pictures import channels_of
from tests.fakes.memory import GIB, process, sample


@pytest.fixture
def stack(qtbot: QtBot, theme: Theme) -> MemoryStack:
    stack = MemoryStack(theme, ColourBook(PROCESS_COLOURS))
    stack.resize(500, 160)
    qtbot.addWidget(stack)
    stack.show()
    qtbot.waitExposed(stack)
    return stack


def rgb(stack: MemoryStack) -> np.ndarray:
    """The picture's colours [rows, columns] as #rrggbb, paper as ""."""
    image = channels_of(stack)
    return np.array([["" if p[3] == 0 else "#{:02x}{:02x}{:02x}".format(*p[:3]) for p in row] for row in image])


def test_columns_show_what_was_held(stack: MemoryStack) -> None:
    for second in range(121):
        llama = [process("llama", 5, 6 * GIB, ProcessKind.MODEL_SERVER)] if second < 60 else []
        own = process("kvscope", 1, (2 if second < 60 else 7) * GIB, ProcessKind.OWN)
        stack.push(sample(second, [*llama, own], unattributed_bytes=GIB))
    stack.refresh()
    pixels = rgb(stack)
    height = len(pixels)
    gib_px = height / stack.frame.y_range[1]
    llama_colour = stack.colour_of(ProcessIdentity(5, 50))
    left, right = pixels[:, 3], pixels[:, -3]
    assert (left == llama_colour).sum() == round(6 * gib_px)
    assert abs((left == OWN_COLOUR).sum() - 2 * gib_px) <= 1
    assert (right == llama_colour).sum() == 0
    assert (right == OWN_COLOUR).sum() == round(7 * gib_px)
    hatched = pixels[:, -40:] == ROLE_COLOURS[BandRole.UNKNOWN]
    assert 0 < hatched.sum() < 40 * gib_px  # stripes, not a filled band
    assert llama_colour not in ROLE_COLOURS.values()


def test_own_shared_and_others_have_colours_of_their_own() -> None:
    assert not {OWN_COLOUR, SHARED_COLOUR, *ROLE_COLOURS.values()} & set(PROCESS_COLOURS)


def test_a_time_without_samples_is_a_gap(stack: MemoryStack) -> None:
    for second in [*range(60), *range(80, 121)]:
        stack.push(sample(second, [process("a", 5, GIB)]))
    stack.refresh()
    pixels = rgb(stack)
    columns = pixels.shape[1]
    empty = [(pixels[:, column] == "").all() for column in range(columns)]
    first, last = empty.index(True), columns - 1 - empty[::-1].index(True)
    assert first / columns * 120 == pytest.approx(59, abs=0.5)
    assert last / columns * 120 == pytest.approx(80, abs=0.5)
    assert all(empty[first : last + 1])
    assert stack.hover_text(-50, 0.5) == "No sample at this time"


def test_a_process_keeps_its_colour_while_others_come_and_go(stack: MemoryStack) -> None:
    colours = set()
    for second in range(60):
        crowd = [process(f"p{second}", 100 + second, (1 + second % 3) * GIB // 2)]
        stack.push(sample(second, [process("steady", 5, 2 * GIB), *crowd]))
        stack.refresh()
        colours.add(stack.colour_of(ProcessIdentity(5, 50)))
        assert [band.key for band in stack.bands].count(ProcessIdentity(5, 50)) == 1
    assert len(colours) == 1


def test_the_axis_shows_the_card_or_zooms_to_what_is_used(stack: MemoryStack) -> None:
    stack.push(sample(0, [process("a", 5, 6 * GIB)], total_bytes=12 * GIB))
    stack.refresh()
    assert 12 < stack.frame.y_range[1] < 13
    stack.push(sample(1, [process("a", 5, 2 * GIB)], total_bytes=24 * GIB, device="Other"))
    stack.refresh()
    assert 2 < stack.frame.y_range[1] <= 3
    assert stack.frame.levels[0].text == "24.0 GiB in all"
    assert stack.frame.levels[0].y > stack.frame.y_range[1]  # said in the corner


def test_bands_never_rise_above_the_total(stack: MemoryStack) -> None:
    rows = [process(f"p{pid}", pid, 4 * GIB) for pid in range(2, 8)]
    stack.push(sample(0, rows, total_bytes=10 * GIB, unattributed_bytes=-14 * GIB))
    stack.push(sample(1, rows, total_bytes=10 * GIB, unattributed_bytes=-14 * GIB))
    stack.refresh()
    pixels = rgb(stack)
    top = int(np.argmax(pixels[:, -1] != ""))
    assert (len(pixels) - top) <= round(10 / stack.frame.y_range[1] * len(pixels))


def test_hover_tells_the_bands_and_marks_the_one_under_the_mouse(stack: MemoryStack) -> None:
    rows = [process("llama", 5, 6 * GIB), process("kvscope", 1, 2 * GIB, ProcessKind.OWN)]
    for second in range(3):
        stack.push(sample(second, rows))
    stack.refresh()
    assert stack.hover_text(-1, 7).splitlines() == ["1 s ago · 8.00 GiB used", "▸ KVScope 2.00", "   llama 6.00"]
    assert "▸ llama 6.00" in stack.hover_text(-1, 3)
    assert "▸" not in stack.hover_text(-1, 9)


def test_events_are_marked_at_their_time(stack: MemoryStack) -> None:
    stack.push(sample(100))
    stack.add_mark(60, "llama stopped")
    stack.refresh()
    assert [(mark.x, mark.text) for mark in stack.frame.marks] == [(-40, "llama stopped")]
    stack.push(sample(130))
    stack.refresh()
    assert stack.frame.marks[0].x == -70
