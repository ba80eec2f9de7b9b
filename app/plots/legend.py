"""A legend that carries values: swatches and words in a fixed number of rows, so nothing jumps when entries come."""

from dataclasses import dataclass
from enum import Enum, auto

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import Theme

_SWATCH_PX = 10
_TEXT_GAP_PX = 5
_ENTRY_GAP_PX = 12
_LEFT = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
_RIGHT = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)


class Swatch(Enum):
    """How the little square before the words looks."""

    SOLID = auto()
    HATCHED = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Entry:
    """One swatch with its words; without a colour of its own it takes the theme's secondary one."""

    text: str
    colour: str = ""
    swatch: Swatch = Swatch.SOLID


class Legend(QWidget):
    """Entries in rows; those without room are counted at the end and stand in the tooltip."""

    def __init__(self, theme: Theme, rows: int = 1) -> None:
        super().__init__()
        self._theme = theme
        self._rows = rows
        self._entries: tuple[Entry, ...] = ()
        self._placed: list[tuple[Entry, QRect]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What it shows."""
        return self._entries

    @property
    def hidden(self) -> tuple[Entry, ...]:
        """The entries for which there is no room."""
        return self._entries[len(self._placed) :]

    def set_entries(self, entries: tuple[Entry, ...]) -> None:
        """Show these; unchanged ones cost nothing."""
        if entries != self._entries:
            self._entries = entries
            self._arrange()
            self.update()

    def sizeHint(self) -> QSize:
        """Room for all rows, whatever they hold."""
        return QSize(160, self._rows * self._row_height)

    def minimumSizeHint(self) -> QSize:
        """The height never shrinks."""
        return QSize(80, self._rows * self._row_height)

    def resizeEvent(self, _event: QResizeEvent) -> None:
        """Another width has room for others."""
        self._arrange()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw what fits."""
        painter = QPainter(self)
        for entry, place in self._placed:
            self._paint_entry(painter, entry, place)
        if self.hidden:
            painter.setPen(QColor(self._theme.colours.secondary))
            last_row = QRect(0, (self._rows - 1) * self._row_height, self.width(), self._row_height)
            painter.drawText(last_row, _RIGHT, f"+{len(self.hidden)} more")

    @property
    def _row_height(self) -> int:
        return self.fontMetrics().height() + 2

    def _arrange(self) -> None:
        """Place row by row; the last row keeps room for the count of the others."""
        self._placed = []
        x, row = 0, 0
        count_width = self.fontMetrics().horizontalAdvance("+99 more") + _ENTRY_GAP_PX
        for index, entry in enumerate(self._entries):
            width = self._width(entry)
            in_last_row, has_more = row == self._rows - 1, index < len(self._entries) - 1
            if x and x + width > self.width() - (count_width if in_last_row and has_more else 0):
                if in_last_row:
                    break
                x, row = 0, row + 1
            self._placed.append((entry, QRect(x, row * self._row_height, width, self._row_height)))
            x += width + _ENTRY_GAP_PX
        self.setToolTip("\n".join(entry.text for entry in self.hidden))
        self.setAccessibleDescription(", ".join(entry.text for entry in self._entries))

    def _width(self, entry: Entry) -> int:
        swatch = 0 if entry.swatch is Swatch.NONE else _SWATCH_PX + _TEXT_GAP_PX
        return swatch + self.fontMetrics().horizontalAdvance(entry.text)

    def _paint_entry(self, painter: QPainter, entry: Entry, place: QRect) -> None:
        if entry.swatch is not Swatch.NONE:
            top = place.top() + (place.height() - _SWATCH_PX) // 2
            self._paint_swatch(painter, entry, QRect(place.left(), top, _SWATCH_PX, _SWATCH_PX))
            place = place.adjusted(_SWATCH_PX + _TEXT_GAP_PX, 0, 0, 0)
        painter.setPen(QColor(self._theme.colours.text if entry.colour else self._theme.colours.secondary))
        painter.drawText(place, _LEFT, entry.text)

    def _paint_swatch(self, painter: QPainter, entry: Entry, place: QRect) -> None:
        colour = QColor(entry.colour or self._theme.colours.secondary)
        is_hatched = entry.swatch is Swatch.HATCHED
        painter.fillRect(
            place, QBrush(colour, Qt.BrushStyle.BDiagPattern if is_hatched else Qt.BrushStyle.SolidPattern)
        )
