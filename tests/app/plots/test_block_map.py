"""The map of blocks: numbers, layout, words."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QToolTip
from pytestqt.qtbot import QtBot

from app.plots.block_map import CACHED, EMPTY, FIRST_OWNER, SHARED, BlockMapPlot, block_numbers, shown_blocks
from app.plots.colours import SEQUENCE_COLOURS, ColourBook
from app.theme import LIGHT, Theme
from engine.events import BlockMap, BlockOwner
from tests.app.plots.pictures import channels_of

MAP = BlockMap(
    30, 16, owners=(BlockOwner("r1", (4, 9, 2), 40), BlockOwner("r2", (4, 7), 20)), cached=(11, 12)
)  # fmt: skip


@pytest.fixture
def plot(qtbot: QtBot, theme: Theme) -> BlockMapPlot:
    plot = BlockMapPlot(theme, ColourBook(SEQUENCE_COLOURS), {"r1": "#1", "r2": "#2"}.__getitem__)
    plot.resize(100, 60)
    qtbot.addWidget(plot)
    plot.show()
    qtbot.waitExposed(plot)
    plot.set_map(MAP)
    plot.refresh()
    return plot


def hover(qtbot: QtBot, plot: BlockMapPlot, block: int) -> str:
    grid = plot.grid
    row, column = divmod((block - 1) // grid.per_cell, grid.columns)
    place = QPoint(column * grid.cell_px + 1, row * grid.cell_px + 1)
    QTest.mouseMove(plot.viewport(), plot.area.topLeft() + place)
    qtbot.waitUntil(QToolTip.isVisible)
    return QToolTip.text()


@given(data=st.data(), total=st.integers(1, 60))
def test_every_block_has_the_number_of_its_state(data: st.DataObject, total: int) -> None:
    holders = data.draw(st.lists(st.sets(st.integers(1, total)), max_size=5))
    held = set().union(*holders)
    cached = tuple(data.draw(st.sets(st.integers(1, total))) - held)
    owners = tuple(BlockOwner(f"r{index}", tuple(blocks)) for index, blocks in enumerate(holders))
    slots = {f"r{index}": 3 * index for index in range(len(holders))}
    numbers = block_numbers(BlockMap(total, 16, owners, cached), slots)
    for block in range(1, total + 1):
        mine = [index for index, blocks in enumerate(holders) if block in blocks]
        if len(mine) > 1:
            expected = SHARED
        elif mine:
            expected = FIRST_OWNER + 3 * mine[0]
        else:
            expected = CACHED if block in cached else EMPTY
        assert numbers[block - 1] == expected


def test_cells_have_their_colours(plot: BlockMapPlot) -> None:
    image = channels_of(plot)
    side, columns = plot.grid.cell_px, plot.grid.columns

    def colour(block: int) -> str:
        row, column = divmod(block - 1, columns)
        return "#{:02x}{:02x}{:02x}".format(*image[row * side, column * side][:3])

    book = plot._colours
    assert colour(9) == colour(2) == book.colour("r1")
    assert colour(7) == book.colour("r2") != book.colour("r1")
    assert colour(4) == LIGHT.text
    assert colour(11) == LIGHT.cached_block
    assert colour(30) == LIGHT.empty_block


def test_a_sequence_keeps_its_colour(plot: BlockMapPlot) -> None:
    before = plot._colours.colour("r2")
    plot.set_map(BlockMap(30, 16, owners=(BlockOwner("r9", (1,)), BlockOwner("r2", (4, 7))), cached=()))
    plot.refresh()
    assert plot._colours.colour("r2") == before


def test_hover_names_block_holder_and_tokens(qtbot: QtBot, plot: BlockMapPlot) -> None:
    assert hover(qtbot, plot, 9) == "Block 9 · used by #1 · its tokens 17 to 32"
    assert hover(qtbot, plot, 4) == "Block 4 · shared by #1 and #2 · tokens 1 to 16"
    assert hover(qtbot, plot, 11) == "Block 11 · cached: free, but it still holds a prefix"
    assert hover(qtbot, plot, 30) == "Block 30 · empty"


@given(touched=st.integers(0, 40_000), total=st.integers(1, 40_000))
def test_the_map_shows_what_was_touched_and_as_much_room(touched: int, total: int) -> None:
    touched = min(touched, total)
    shown = shown_blocks(touched, total)
    candidates = [size for power in range(8, 18) if (size := 2**power) >= 2 * touched]
    assert shown == min(candidates[0], total)
    assert shown >= touched


@pytest.mark.parametrize("seed", range(20))
def test_every_used_or_cached_block_is_on_the_map_and_it_never_shrinks(plot: BlockMapPlot, seed: int) -> None:
    chance = random.Random(seed)
    total = chance.randint(300, 3000)
    plot.set_map(None)
    before = 0
    for _ in range(5):
        held, cached = (tuple(chance.sample(range(1, total // 2), chance.randint(0, 3))) for _ in range(2))
        plot.set_map(BlockMap(total, 16, (BlockOwner("r1", held),), cached))
        assert plot.shown >= max((*held, *cached), default=0)
        assert plot.shown >= before
        before = plot.shown
    plot.set_map(None)  # another model
    plot.set_map(BlockMap(total, 16, (), ()))
    assert plot.shown == 256


def test_a_part_is_said_to_be_one(qtbot: QtBot, plot: BlockMapPlot) -> None:
    assert plot.frame.caption == ""
    plot.set_map(BlockMap(8192, 16, owners=(BlockOwner("r1", (1, 129)),), cached=(3,)))
    plot.refresh()
    assert len(plot.numbers) == 512
    assert plot.frame.caption == "blocks 1–512 of 8,192, the rest was never used"
    assert hover(qtbot, plot, 129) == "Block 129 · used by #1 · its tokens 17 to 32"
    QTest.mouseMove(plot.viewport(), QPoint(60, 5))
    qtbot.waitUntil(lambda: QToolTip.text().startswith("The cache has 8,192 blocks."))


def test_cells_have_gaps_and_fill_the_width(plot: BlockMapPlot) -> None:
    plot.resize(470, 110)
    plot.set_map(BlockMap(8192, 16, owners=(BlockOwner("r1", (1, 2)),), cached=()))
    plot.refresh()
    assert plot.grid.gap_px == 1
    assert plot.width() - plot.grid.cell_px < plot.grid.columns * plot.grid.cell_px <= plot.width()


def test_more_blocks_than_pixels(qtbot: QtBot, plot: BlockMapPlot) -> None:
    plot.set_map(BlockMap(50_000, 16, owners=(BlockOwner("r1", (1, 2)),), cached=(3, 50_000)))
    plot.refresh()
    per_cell = plot.grid.per_cell
    assert per_cell > 1
    assert hover(qtbot, plot, 1) == f"Blocks 1 to {per_cell}: 2 used, 1 cached, {per_cell - 3} empty"


def test_the_picture_stays_inside(plot: BlockMapPlot) -> None:
    for total in (1, 7, 480, 9000):
        plot.set_map(BlockMap(total, 16, (), ()))
        plot.refresh()
        height, width = channels_of(plot).shape[:2]
        assert width <= plot.width()
        assert height <= plot.height()
        assert len(plot.numbers) == min(total, 256)
        assert (plot.numbers == EMPTY).all()
        assert isinstance(plot.numbers, np.ndarray)
