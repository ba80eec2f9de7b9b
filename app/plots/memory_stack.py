"""Graph 1: memory by process as a stacked area over the last two minutes."""

from collections.abc import Sequence

import numpy as np

from app.gpu.record import MemorySample, ProcessIdentity
from app.plots.colours import ColourBook
from app.plots.frame import Frame, Level, Mark
from app.plots.live_plot import LivePlot
from app.plots.memory_history import WINDOW_S, Band, BandKey, BandRole, MemoryHistory
from app.plots.ranges import Ceiling, tick_text, ticks
from app.plots.raster import Pixels, draw_stack, hatch, stack_tops
from app.plots.series import Floats
from app.theme import DATA_COLOURS, OWN_COLOUR, UNATTRIBUTED_COLOUR, Theme

GIB = float(2**30)
TIME_LABELS = ((-120.0, "−120 s"), (-90.0, "−90"), (-60.0, "−60"), (-30.0, "−30"), (0.0, "now"))
SHARED_COLOUR = DATA_COLOURS[3]
PROCESS_COLOURS = tuple(colour for colour in DATA_COLOURS[:-1] if colour != SHARED_COLOUR)
OTHERS_COLOUR = DATA_COLOURS[-1]
ROLE_COLOURS = {
    BandRole.OTHERS: OTHERS_COLOUR,
    BandRole.OWN: OWN_COLOUR,
    BandRole.SHARED: SHARED_COLOUR,
    BandRole.UNKNOWN: UNATTRIBUTED_COLOUR,
    BandRole.DRIVER: UNATTRIBUTED_COLOUR,
}
_NUMBERS = {role: number for number, role in enumerate(ROLE_COLOURS, start=1)}
_FIRST_PROCESS = len(ROLE_COLOURS) + 1
# Below this share of the total the axis zooms, or two used GiB of 24 would be a line on the ground.
_WHOLE_FROM = 0.4
_MAX_MARKS = 4


class MemoryStack(LivePlot):
    """The stack. Its colours for processes come from a book that the legend and the table share."""

    def __init__(self, theme: Theme, colours: ColourBook[ProcessIdentity]) -> None:
        self._colours = colours
        self._ceiling = Ceiling(smallest=0.25)
        self._marks: tuple[Mark, ...] = ()
        super().__init__(theme)
        self.history = MemoryHistory()
        self.bands: tuple[Band, ...] = ()
        self.band_bytes: Floats = np.zeros((0, 0))

    def push(self, sample: MemorySample) -> None:
        """Add one look at the memory."""
        self.history.push(sample)
        self.mark_dirty()

    def add_mark(self, time_s: float, text: str) -> None:
        """Write an event at its time."""
        self._marks = (*self._marks, Mark(time_s, text))[-_MAX_MARKS:]
        self.mark_dirty()

    def colour_of(self, key: BandKey) -> str:
        """A band's colour as #rrggbb."""
        return ROLE_COLOURS[key] if isinstance(key, BandRole) else self._colours.colour(key)

    def lookup_colours(self) -> Sequence[str]:
        """First the bands that are no process, then the processes' colours."""
        return (*ROLE_COLOURS.values(), *self._colours.colours)

    def draw(self) -> None:
        """Scale to what is used, and fill the columns."""
        sample = self.history.sample
        if sample is None:
            return
        end = self._y_end(sample)
        now = sample.time_s
        self.frame = Frame(
            x_range=(-WINDOW_S, 0.0),
            y_range=(0.0, end),
            x_labels=TIME_LABELS,
            y_labels=tuple((value, tick_text(value)) for value in ticks(end, self.tick_room)),
            levels=(Level(sample.total_bytes / GIB, f"{sample.total_bytes / GIB:.1f} GiB in all"),),
            marks=tuple(Mark(mark.x - now, mark.text) for mark in self._marks),
            unit="GiB",
        )
        self.show_pixels(self._pixels(now, end))

    def hover_text(self, x: float, y: float) -> str:
        """The bands at that time from the top down, the one under the mouse marked."""
        column = self._column(x)
        if column is None or np.isnan(self.band_bytes[:, column]).any():
            return "No sample at this time" if self.bands else ""
        values = self.band_bytes[:, column]
        tops = np.cumsum(values) / GIB
        lines = [f"{-x:.0f} s ago · {tops[-1]:.2f} GiB used"]
        for index in reversed(range(len(values))):
            if values[index] >= GIB / 200:
                here = tops[index] - values[index] / GIB <= y < tops[index]
                lines.append(f"{'▸ ' if here else '   '}{self.bands[index].name} {values[index] / GIB:.2f}")
        return "\n".join(lines)

    def _y_end(self, sample: MemorySample) -> float:
        total = sample.total_bytes / GIB
        peak = self.history.peak_bytes / GIB
        if peak >= _WHOLE_FROM * total:
            return total * 1.04
        return self._ceiling.follow(peak, limit=total * 1.04)

    def _pixels(self, now_s: float, end: float) -> Pixels:
        width, height = self.image_size
        at = now_s + np.linspace(-WINDOW_S, 0.0, width)
        self.bands, self.band_bytes = self.history.read(at)
        tops = stack_tops(self.band_bytes, height / (end * GIB), height)
        picture = draw_stack(tops, self._band_numbers(), height)
        hatch(picture, _NUMBERS[BandRole.UNKNOWN])
        return picture

    def _band_numbers(self) -> tuple[int, ...]:
        identities = [band.key for band in self.bands if not isinstance(band.key, BandRole)]
        slots = dict(zip(identities, self._colours.slots(identities), strict=True))
        return tuple(
            _NUMBERS[band.key] if isinstance(band.key, BandRole) else _FIRST_PROCESS + slots[band.key]
            for band in self.bands
        )

    def _column(self, x: float) -> int | None:
        columns = self.band_bytes.shape[1]
        column = round((x + WINDOW_S) / WINDOW_S * (columns - 1))
        return column if 0 <= column < columns else None
