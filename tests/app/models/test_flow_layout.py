"""The row that wraps, against a brute-force reading of the widgets' places."""

from itertools import pairwise

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.models.flow_layout import FlowLayout

WIDTHS = (120, 80, 200, 40, 160)
HIDDEN = 3


@pytest.fixture
def box(qtbot: QtBot) -> QWidget:
    box = QWidget()
    layout = FlowLayout(8, box)
    for number, width in enumerate(WIDTHS):
        child = QWidget(box)
        child.setFixedSize(width, 20)
        child.setVisible(number != HIDDEN)
        layout.addWidget(child)
    qtbot.addWidget(box)
    box.show()
    return box


@pytest.mark.parametrize("width", [200, 210, 300, 420, 600, 1000])
def test_nothing_overlaps_or_sticks_out_and_lines_are_full(box: QWidget, width: int, qtbot: QtBot) -> None:
    box.resize(width, 400)
    qtbot.waitUntil(lambda: box.width() == width)
    children = [child for child in box.findChildren(QWidget) if child.isVisible()]
    places = [child.geometry() for child in children]
    assert len(places) == len(WIDTHS) - 1
    assert all(place.left() >= 0 and place.right() < width for place in places)
    assert not any(a.intersects(b) for a in places for b in places if a is not b)
    for before, after in pairwise(places):
        wrapped = after.top() > before.top()
        assert wrapped == (before.right() + 1 + 8 + after.width() > width)
    layout = box.layout()
    assert isinstance(layout, FlowLayout)
    assert layout.heightForWidth(width) == places[-1].bottom() + 1


def test_its_hints_are_one_line_and_the_widest(box: QWidget) -> None:
    layout = box.layout()
    assert isinstance(layout, FlowLayout)
    shown = [width for number, width in enumerate(WIDTHS) if number != HIDDEN]
    assert layout.sizeHint().width() == sum(shown) + 8 * (len(shown) - 1)
    assert layout.minimumSize().width() == max(shown)
    assert layout.itemAt(99) is None
    assert layout.takeAt(99) is None
