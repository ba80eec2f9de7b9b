"""KV blocks over the last two minutes: used, and cached on top of it; what is left to the end of the pool is empty."""

from collections.abc import Callable, Sequence

import numpy as np

from app.plots.colours import IN_USE_COLOUR
from app.plots.frame import Frame, Level
from app.plots.live_plot import LivePlot
from app.plots.memory_history import WINDOW_S
from app.plots.memory_stack import TIME_LABELS
from app.plots.ranges import Ceiling, tick_text, ticks
from app.plots.raster import draw_stack, stack_tops
from app.plots.series import Floats, Ring, hold
from app.theme import Theme
from engine.events import StepStats

USED_COLOUR = IN_USE_COLOUR
_BIN_S = 0.25
_CAPACITY = 1024  # two points for each quarter of a second, and some


class BlockSeries:
    """Used and cached blocks over time, thinned to the fullest and the last step of each quarter second.

    A fast engine makes hundreds of steps a second; thinned like this two minutes always fit and no peak is lost.
    """

    def __init__(self) -> None:
        self._ring = Ring(3, _CAPACITY)
        self._bin = -1
        self._fullest = 0

    def push(self, stats: StepStats) -> None:
        """Add one step."""
        column = (stats.time_s, stats.blocks_used, stats.blocks_cached)
        this_bin = int(stats.time_s / _BIN_S)
        if this_bin != self._bin:
            self._ring.append(column)  # becomes the fullest of its bin
            self._ring.append(column)  # follows the newest
        elif stats.blocks_used > self._fullest:
            self._ring.replace(2, column)
            self._ring.replace(1, column)
        else:
            self._ring.replace(1, column)
        self._fullest = max(stats.blocks_used, self._fullest if this_bin == self._bin else 0)
        self._bin = this_bin

    def read(self, edges: Floats) -> Floats:
        """Used and cached [2, m] in the columns between `edges` [m + 1]; NaN before the first step."""
        data = self._ring.last(len(self._ring))
        return hold(data[0], data[1:], edges)


class BlockHistory(LivePlot):
    """The picture of a BlockSeries. Values hold until the next step: an idle engine keeps its blocks."""

    def __init__(self, theme: Theme, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ceiling = Ceiling(smallest=8)
        self._series = BlockSeries()
        self._total = 0
        self.values: Floats = np.zeros((2, 0))
        super().__init__(theme)

    def push(self, stats: StepStats) -> None:
        """Add one step."""
        self._series.push(stats)
        self._total = stats.blocks_total
        self.mark_dirty()

    def begin(self, blocks_total: int) -> None:
        """Start anew, for another model's pool."""
        self._series = BlockSeries()
        self._total = blocks_total
        self.mark_dirty()

    def lookup_colours(self) -> Sequence[str]:
        """Used, cached."""
        return (USED_COLOUR, self._theme.colours.cached_block)

    def draw(self) -> None:
        """Zoom to what is used, and fill the columns."""
        width, height = self.image_size
        edges = self._clock() + np.linspace(-WINDOW_S, 0.0, width + 1)
        self.values = self._series.read(edges)
        end = self._ceiling.follow(float(np.nansum(self.values, axis=0).max(initial=0.0)), limit=max(1, self._total))
        self.frame = Frame(
            x_range=(-WINDOW_S, 0.0),
            y_range=(0.0, end),
            x_labels=TIME_LABELS,
            y_labels=tuple((value, tick_text(value)) for value in ticks(end, self.tick_room)),
            levels=(Level(self._total, f"{self._total:,} in all"),),
            unit="blocks",
        )
        self.show_pixels(draw_stack(stack_tops(self.values, height / end, height, 1), (1, 2), height))

    def hover_text(self, x: float, _y: float) -> str:
        """The three counts at that time."""
        columns = self.values.shape[1]
        column = int((x + WINDOW_S) / WINDOW_S * columns)
        if not 0 <= column < columns or np.isnan(self.values[0, column]):
            return ""
        used, cached = (int(value) for value in self.values[:, column])
        return f"{-x:.0f} s ago\n{used:,} used\n{cached:,} cached\n{self._total - used - cached:,} empty"
