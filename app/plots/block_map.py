"""The map of the KV blocks: one square each, coloured by the sequence that holds it.

A pool is often hundreds of times larger than what is in use; the map shows the part that was ever touched, and room.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PySide6.QtCore import QPoint, QRect

from app.plots.colours import ColourBook
from app.plots.frame import Frame, Margins
from app.plots.live_plot import LivePlot
from app.plots.overlay import Overlay
from app.plots.raster import CellGrid, Pixels, draw_cells, fit_cells
from app.theme import Theme
from engine.events import BlockMap

EMPTY, CACHED, SHARED = 1, 2, 3
FIRST_OWNER = 4
FEWEST_SHOWN = 256

_WHOLE = Margins(left_px=0, top_px=0, right_px=0, bottom_px=0)
_WITH_CAPTION = Margins(left_px=0, top_px=17, right_px=0, bottom_px=0)


def highest_touched(block_map: BlockMap) -> int:
    """The highest block id that is used or cached; 0 when all are empty."""
    held = (max(owner.block_ids, default=0) for owner in block_map.owners)
    return max(max(held, default=0), max(block_map.cached, default=0))


def shown_blocks(touched: int, total: int) -> int:
    """How many blocks the map shows: the first 256, 512, 1,024, … that leave half of it free, or all.

    Args:
        touched: the highest id that was ever used or cached.
        total: usable blocks.
    """
    shown = FEWEST_SHOWN
    while shown < 2 * touched:
        shown *= 2
    return min(shown, total)


def block_numbers(block_map: BlockMap, slots: dict[str, int]) -> Pixels:
    """The colour number of every usable block [blocks_total]; block 1 comes first."""
    numbers = np.full(block_map.blocks_total + 1, EMPTY, dtype=np.uint8)
    numbers[list(block_map.cached)] = CACHED
    holders = np.zeros(block_map.blocks_total + 1, dtype=np.int64)
    for owner in block_map.owners:
        ids = list(owner.block_ids)
        numbers[ids] = FIRST_OWNER + slots[owner.request_id]
        holders[ids] += 1
    numbers[holders > 1] = SHARED
    return numbers[1:]


class BlockMapPlot(LivePlot):
    """The map. `name_of` gives a request the short name that people read."""

    def __init__(self, theme: Theme, colours: ColourBook[str], name_of: Callable[[str], str]) -> None:
        self._colours = colours
        self._name_of = name_of
        self._map: BlockMap | None = None
        self._touched = 0
        self._grid = CellGrid(columns=1, rows=1, cell_px=1, per_cell=1)
        self.numbers: Pixels = np.zeros(0, dtype=np.uint8)
        super().__init__(theme, _WHOLE)

    @property
    def shown(self) -> int:
        """How many blocks it shows, from block 1 on. Never fewer than before while a model is loaded."""
        return shown_blocks(self._touched, self._map.blocks_total) if self._map is not None else 0

    @property
    def grid(self) -> CellGrid:
        """How the blocks are laid out now."""
        return self._grid

    def set_map(self, block_map: BlockMap | None) -> None:
        """Show another state of the blocks; None begins anew, for another model."""
        self._touched = 0 if block_map is None else max(self._touched, highest_touched(block_map))
        self._map = block_map
        self.mark_dirty()

    def lookup_colours(self) -> Sequence[str]:
        """Empty, cached and shared follow the theme; owners do not."""
        colours = self._theme.colours
        return (colours.empty_block, colours.cached_block, colours.text, *self._colours.colours)

    def draw(self) -> None:
        """Lay the blocks out in the largest whole-pixel squares."""
        if self._map is None:
            return
        names = [owner.request_id for owner in self._map.owners]
        slots = dict(zip(names, self._colours.slots(names), strict=True))
        self.numbers = block_numbers(self._map, slots)[: self.shown]
        self._show_extent(self._map.blocks_total)
        self._grid = fit_cells(len(self.numbers), self.area.width(), self.area.height())
        pixels = draw_cells(self.numbers, self._grid)
        self.show_pixels(pixels, self._place)

    def hover_text(self, _x: float, _y: float) -> str:
        """Block id, who holds it and which of the sequence's tokens it keeps."""
        blocks = self._blocks_under_mouse()
        if self._map is None or not blocks:
            return ""
        if len(blocks) > 1:
            return f"Blocks {blocks[0]:,} to {blocks[-1]:,}: " + self._counts(blocks)
        return f"Block {blocks[0]:,} · " + (self._holders(blocks[0]) or self._free_state(blocks[0]))

    def paint_reading(self, _overlay: Overlay, _mouse: QPoint) -> None:
        """The words name the block; a line would only hide the cells."""

    def _show_extent(self, total: int) -> None:
        """Say in the corner which part is shown; a whole map needs no words."""
        self.set_margins(_WITH_CAPTION if self.shown < total else _WHOLE)
        self.frame, self.caption_tip = Frame(), ""
        if self.shown < total:
            self.frame = Frame(caption=f"blocks 1–{self.shown:,} of {total:,}, the rest was never used")
            self.caption_tip = (
                f"The cache has {total:,} blocks. Only the first {self.shown:,} are drawn, so that they can be seen;\n"
                "none of the others was used since the model was loaded. The map grows when they are needed."
            )

    @property
    def _place(self) -> QRect:
        side = self._grid.cell_px
        return QRect(self.area.left(), self.area.top(), self._grid.columns * side, self._grid.rows * side)

    def _blocks_under_mouse(self) -> range:
        if self._mouse is None:
            return range(0)
        place = self._mouse - self.area.topLeft()
        cell = self._grid.cell_at(place.x(), place.y())
        if cell is None:
            return range(0)
        first = cell * self._grid.per_cell + 1
        return range(first, min(first + self._grid.per_cell, len(self.numbers) + 1))

    def _holders(self, block: int) -> str:
        block_map: Any = self._map
        size = block_map.block_size_tokens
        held = [
            (self._name_of(owner.request_id), owner.block_ids.index(block))
            for owner in block_map.owners
            if block in owner.block_ids
        ]
        if not held:
            return ""
        place = held[0][1]
        tokens = f"tokens {place * size + 1:,} to {(place + 1) * size:,}"
        names = " and ".join(name for name, _ in held)
        return f"shared by {names} · {tokens}" if len(held) > 1 else f"used by {names} · its {tokens}"

    def _free_state(self, block: int) -> str:
        cached = self._map is not None and block in self._map.cached
        return "cached: free, but it still holds a prefix" if cached else "empty"

    def _counts(self, blocks: range) -> str:
        part = self.numbers[blocks.start - 1 : blocks.stop - 1]
        empty, cached = int((part == EMPTY).sum()), int((part == CACHED).sum())
        return f"{len(part) - empty - cached} used, {cached} cached, {empty} empty"
