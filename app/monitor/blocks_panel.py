"""Graph 2: the card with the KV blocks over time and the map of who holds each."""

import time
from collections.abc import Callable

from PySide6.QtCore import Slot

from app.monitor.rhythm import Rhythm
from app.plots.block_history import USED_COLOUR, BlockHistory
from app.plots.block_map import BlockMapPlot
from app.plots.colours import ColourBook
from app.plots.legend import Entry, Legend
from app.theme import Theme
from app.widgets import Card
from engine.events import BlockMap, StepStats

PERIOD_S = 0.5


class BlocksPanel(Card):
    """Shows steps and block maps; `name_of` gives a request the short name that people read."""

    def __init__(
        self,
        theme: Theme,
        colours: ColourBook[str],
        name_of: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("KV blocks")
        self._theme = theme
        self._colours = colours
        self._name_of = name_of
        self._map: BlockMap | None = None
        self._words_are_old = False
        self._rhythm = Rhythm(PERIOD_S, clock)
        self.history = BlockHistory(theme, clock)
        self.history.setAccessibleName("KV blocks used and cached over the last 120 seconds")
        self.map = BlockMapPlot(theme, colours, name_of)
        self.map.setAccessibleName("Map of the KV blocks by owner")
        self.legend = Legend(theme, rows=2)
        self.body.addWidget(self.history, 4)
        self.body.addWidget(self.map, 5)
        self.body.addWidget(self.legend)
        self.history.setMinimumHeight(70)
        self.map.setMinimumHeight(48)

    @property
    def needs_drawing(self) -> bool:
        """Whether something has come that is not drawn."""
        words = self._words_are_old and self.map.is_seen
        return self.history.needs_drawing or self.map.needs_drawing or words

    def show_words(self, text: str) -> None:
        """No model: say what will be here."""
        self._map = None
        self.history.begin(0)
        self.map.set_map(None)
        self.map.set_message(text)
        self.history.setVisible(not text)
        self.legend.set_entries(())
        self.values.setText("")

    def show_pool(self, blocks_total: int, block_size_tokens: int) -> None:
        """A model is there: all its blocks are empty."""
        self.show_words("")
        self.history.begin(blocks_total)
        self.on_block_map(BlockMap(blocks_total, block_size_tokens, owners=(), cached=()))

    @Slot(object)
    def on_steps(self, steps: tuple[StepStats, ...]) -> None:
        """Take steps; drawn at the next `refresh`."""
        for stats in steps:
            self.history.push(stats)

    @Slot(object)
    def on_block_map(self, block_map: BlockMap) -> None:
        """Take a state of the blocks; drawn at the next `refresh`."""
        self._map = block_map
        self.map.set_map(block_map)
        self._words_are_old = True

    def refresh(self) -> None:
        """Draw what came, every 0.5 s at most: blocks change slowly and their map is large."""
        if self.needs_drawing and self._rhythm.take_turn():
            self.history.refresh()
            self.map.refresh()
            if self._map is not None and self._words_are_old:
                self._words_are_old = False
                self.values.setText(values_text(self._map))
                self.legend.set_entries(self._entries(self._map))

    def _entries(self, block_map: BlockMap) -> tuple[Entry, ...]:
        """The three states first, then the owners, most blocks first."""
        colours = self._theme.colours
        used, shared = len(_held(block_map)), len(_shared(block_map))
        empty = block_map.blocks_total - used - len(block_map.cached)
        states = [
            Entry(f"used {used:,}", USED_COLOUR),
            Entry(f"cached {len(block_map.cached):,}", colours.cached_block),
            Entry(f"empty {empty:,}", colours.empty_block),
        ]
        if shared:
            states.append(Entry(f"shared {shared:,}", colours.text))
        owners = sorted(block_map.owners, key=lambda owner: -len(owner.block_ids))
        names = (Entry(self._name_of(owner.request_id), self._colours.colour(owner.request_id)) for owner in owners)
        return (*states, *names)


def values_text(block_map: BlockMap) -> str:
    """The card's values: "214 of 480 used · 16 tokens each · 3,215 tokens · waste 6.1 %".

    Waste is the room in held blocks that no token fills: only a sequence's last block can be partly empty.
    """
    used, size = len(_held(block_map)), block_map.block_size_tokens
    text = f"{used:,} of {block_map.blocks_total:,} used · {size} tokens each"
    if not used or any(owner.num_tokens == 0 for owner in block_map.owners if owner.block_ids):
        return text
    empty_slots = sum(max(0, len(owner.block_ids) * size - owner.num_tokens) for owner in block_map.owners)
    return f"{text} · {used * size - empty_slots:,} tokens · waste {100 * empty_slots / (used * size):.1f} %"


def _held(block_map: BlockMap) -> set[int]:
    return {block for owner in block_map.owners for block in owner.block_ids}


def _shared(block_map: BlockMap) -> set[int]:
    once: set[int] = set()
    more: set[int] = set()
    for owner in block_map.owners:
        blocks = set(owner.block_ids)
        more |= once & blocks
        once |= blocks
    return more
