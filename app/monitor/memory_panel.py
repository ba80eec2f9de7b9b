"""Graph 1: the card with memory by process over time, its legend, and the table of the processes."""

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QToolButton

from app.gpu.record import MemoryKind, MemorySample, ProcessIdentity, ProcessKind, ProcessMemory
from app.monitor.buttons import describe_button
from app.monitor.process_table import ProcessTable, WholeRows
from app.plots.colours import ColourBook
from app.plots.legend import Entry, Legend, Swatch
from app.plots.memory_history import Band, BandKey, BandRole
from app.plots.memory_stack import PROCESS_COLOURS, MemoryStack
from app.theme import OWN_COLOUR, Theme
from app.widgets import Card, ElidedLabel

GIB = 2**30
_LEAST_NAMED = 0.005  # GiB; smaller bands are not worth words
_FREE_SHORTCUT = "Ctrl+Shift+F"
_TABLE_SHORTCUT = "Ctrl+Shift+T"


class MemoryPanel(Card):
    """Shows samples; asks for the dialog by `free_requested`, and for a new sampler by `restart_requested`."""

    free_requested = Signal()
    restart_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__("Memory by process")
        self._colours: ColourBook[ProcessIdentity] = ColourBook(PROCESS_COLOURS)
        self._words_are_old = False
        self._coloured_for: tuple[BandKey, ...] = ()
        self.plot = MemoryStack(theme, self._colours)
        self.plot.setAccessibleName("Memory by process over the last 120 seconds")
        self.plot.set_message("Looking at the memory…")
        self.legend = Legend(theme, rows=2)
        self.table = ProcessTable(colour_of=self._colour_of)
        self._table_room = WholeRows(self.table, least_rows=3)
        self.note = ElidedLabel()
        self.note.setObjectName("secondary")
        self.note.hide()
        self._add_buttons()
        self._lay_out()

    @property
    def needs_drawing(self) -> bool:
        """Whether a sample has come that is not drawn."""
        return self.plot.needs_drawing or (self._words_are_old and self.plot.is_seen)

    @Slot(object)
    def on_sample(self, sample: MemorySample) -> None:
        """Take one look at the memory; drawn at the next `refresh`."""
        self.plot.set_message("")
        self.plot.set_stale("")
        self.again_button.hide()
        self.plot.push(sample)
        self._words_are_old = True

    def refresh(self) -> None:
        """Draw what came, if anybody can see it."""
        self.plot.refresh()
        sample = self.plot.history.sample
        if sample is not None and self._words_are_old and self.plot.is_seen:
            self._words_are_old = False
            self._show_words(sample)

    def _show_words(self, sample: MemorySample) -> None:
        self.set_title("VRAM by process" if sample.memory is MemoryKind.VRAM else "RAM by process")
        self.values.setText(values_text(sample))
        self.values.setToolTip(f"{sample.device}: {self.values.text()}")
        self.legend.set_entries(self._entries())
        self._show_note(sample.note)
        if self.table.isVisible():
            self.table.model_of_processes.set_processes(sample.processes)
            self._recolour_table()

    def _recolour_table(self) -> None:
        """Swatches change with the bands of the graph, though their rows do not."""
        bands = tuple(band.key for band in self.plot.bands)
        if bands != self._coloured_for:
            self._coloured_for = bands
            self.table.model_of_processes.recolour()

    def add_mark(self, time_s: float, text: str) -> None:
        """Write an event into the picture."""
        self.plot.add_mark(time_s, text)

    def show_age(self, age_s: float, reason: str = "") -> None:
        """Grey the picture: its newest sample is old."""
        self.plot.set_stale(f"No sample for {age_s:.0f} s. {reason}".strip())
        self.plot.refresh()

    def show_failure(self, message: str) -> None:
        """The sampler has ended: say why and offer to start it again."""
        if self.plot.history.sample is None:
            self.plot.set_message(message)
        else:
            self.plot.set_stale(message)
        self.again_button.show()
        self.plot.refresh()

    def _add_buttons(self) -> None:
        self.free_button = QPushButton("Free memory…")
        describe_button(self.free_button, "Ask other programs to exit and give their memory back", _FREE_SHORTCUT)
        self.free_button.clicked.connect(self.free_requested)
        self.again_button = QPushButton("Look again")
        describe_button(self.again_button, "Start looking at the memory again")
        self.again_button.clicked.connect(self.restart_requested)
        self.again_button.hide()
        self.header.addWidget(self.again_button)
        self.header.addWidget(self.free_button)

    def _lay_out(self) -> None:
        self._make_toggle()
        below = QHBoxLayout()
        below.addWidget(self.legend, 1)
        below.addWidget(self.table_toggle, 0, Qt.AlignmentFlag.AlignTop)
        self.body.addWidget(self.plot, 3)
        self.body.addLayout(below)
        self.body.addWidget(self.note)
        self.body.addWidget(self._table_room, 2)
        self.plot.setMinimumHeight(90)

    def _make_toggle(self) -> None:
        self.table_toggle = QToolButton()
        self.table_toggle.setCheckable(True)
        self.table_toggle.setChecked(True)
        self.table_toggle.setText("Table")
        self.table_toggle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.table_toggle.setArrowType(Qt.ArrowType.DownArrow)
        describe_button(self.table_toggle, "Show or hide the table of processes", _TABLE_SHORTCUT)
        self.table_toggle.toggled.connect(self._show_table)

    @Slot(bool)
    def _show_table(self, shown: bool) -> None:
        self._table_room.setVisible(shown)
        self.table_toggle.setArrowType(Qt.ArrowType.DownArrow if shown else Qt.ArrowType.RightArrow)
        self._words_are_old = True
        self.refresh()

    def _show_note(self, text: str) -> None:
        self.note.setText(text)
        self.note.setVisible(bool(text))

    def _colour_of(self, process: ProcessMemory) -> str:
        if process.kind is ProcessKind.OWN:
            return OWN_COLOUR
        shown = {band.key for band in self.plot.bands}
        return self._colours.colour(process.identity) if process.identity in shown else ""

    def _entries(self) -> tuple[Entry, ...]:
        """Own first, then the other processes, then what is no process."""
        bands = {band.key: band for band in self.plot.bands}
        processes = sorted(
            (band for band in self.plot.bands if not isinstance(band.key, BandRole)), key=lambda band: -band.now_bytes
        )
        last = (BandRole.OTHERS, BandRole.SHARED, BandRole.UNKNOWN, BandRole.DRIVER)
        ordered = [bands[BandRole.OWN], *processes, *(bands[role] for role in last)] if bands else []
        named = tuple(self._entry(band) for band in ordered if band.now_bytes / GIB >= _LEAST_NAMED)
        return (*named, *self._double_counted(), Entry("GiB", swatch=Swatch.NONE))

    def _entry(self, band: Band) -> Entry:
        swatch = Swatch.HATCHED if band.key is BandRole.UNKNOWN else Swatch.SOLID
        return Entry(f"{band.name} {gib_text(band.now_bytes)}", self.plot.colour_of(band.key), swatch)

    def _double_counted(self) -> tuple[Entry, ...]:
        sample = self.plot.history.sample
        excess = -sample.unattributed_bytes if sample is not None else 0
        if excess / GIB < _LEAST_NAMED:
            return ()
        return (Entry(f"{gib_text(excess)} counted twice (shared buffers)", swatch=Swatch.NONE),)


def values_text(sample: MemorySample) -> str:
    """The card's values: "11.9 GiB card · 8.9 used · 3.0 free"."""
    what = " card" if sample.memory is MemoryKind.VRAM else ""
    total, used, free = (value / GIB for value in (sample.total_bytes, sample.used_bytes, sample.free_bytes))
    return f"{total:.1f} GiB{what} · {used:.1f} used · {free:.1f} free"


def gib_text(value_bytes: float) -> str:
    """A number of GiB without its unit: one decimal from 1 on, two below."""
    gib = value_bytes / GIB
    return f"{gib:.1f}" if gib >= 1 else f"{gib:.2f}"
