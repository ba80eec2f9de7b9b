"""Paints what stands on a plot beside the picture: hairlines, numbers, levels, event marks, words."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app.plots.frame import Frame
from app.theme import Colours

_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_CENTRE = Qt.AlignmentFlag.AlignCenter


class Overlay:
    """One painter at work on one frame."""

    def __init__(self, painter: QPainter, area: QRect, frame: Frame, colours: Colours) -> None:
        self._painter = painter
        self._area = area
        self._frame = frame
        self._colours = colours
        self._height = painter.fontMetrics().height()

    def hairlines(self) -> None:
        """A thin line at each vertical number."""
        self._painter.setPen(QColor(self._colours.line))
        for y, _ in self._frame.y_labels:
            row = min(self._frame.y_px(self._area, y), self._area.bottom())
            self._painter.drawLine(self._area.left(), row, self._area.right(), row)

    def numbers(self) -> None:
        """The words of both axes and the unit."""
        self._painter.setPen(QColor(self._colours.secondary))
        for y, text in self._frame.y_labels:
            top = self._frame.y_px(self._area, y) - self._height // 2
            self._painter.drawText(QRect(0, top, self._area.left() - 6, self._height), int(_RIGHT), text)
        self._painter.drawText(self._caption(), int(_LEFT), self._frame.unit)
        for x, text in self._frame.x_labels:
            self._x_label(self._frame.x_px(self._area, x), text)

    def levels(self) -> None:
        """Dashed lines, named in the corner before the caption; an arrow says that one lies above the axis."""
        names = []
        self._painter.setPen(QPen(QColor(self._colours.secondary), 1, Qt.PenStyle.DashLine))
        for level in self._frame.levels:
            is_above = level.y > self._frame.y_range[1]
            names.append(f"{'↑' if is_above else '┄'} {level.text}")
            if not is_above:
                row = self._frame.y_px(self._area, level.y)
                self._painter.drawLine(self._area.left(), row, self._area.right(), row)
        self._painter.setPen(QColor(self._colours.secondary))
        self._painter.drawText(self._caption(), int(_RIGHT), "   ".join((*names, self._frame.caption)).rstrip())

    def marks(self) -> None:
        """Dotted lines with words; the newest stands on top."""
        low, high = self._frame.x_range
        top = self._area.top() + 7
        seen = sorted((mark for mark in self._frame.marks if low <= mark.x <= high), key=lambda mark: -mark.x)
        places = [min(self._frame.x_px(self._area, mark.x), self._area.right()) for mark in seen]
        self._painter.setPen(QPen(QColor(self._colours.text), 1, Qt.PenStyle.DotLine))
        for x in places:
            self._painter.drawLine(x, self._area.top(), x, self._area.bottom())
        # Words after all lines, or a line would cross the words of another mark.
        for x, mark in zip(places, seen, strict=True):
            top = self._mark_text(x, top, mark.text)

    def reading(self, x: int) -> None:
        """The line under the mouse."""
        self._painter.setPen(QColor(self._colours.secondary))
        self._painter.drawLine(x, self._area.top(), x, self._area.bottom())

    def veil(self) -> None:
        """Grey the picture."""
        colour = QColor(self._colours.card)
        colour.setAlpha(200)
        self._painter.fillRect(self._area, colour)

    def words(self, place: QRect, text: str) -> None:
        """A sentence in the middle, on a piece of card so that it reads on any picture."""
        flags = int(_CENTRE | Qt.TextFlag.TextWordWrap)
        room = place.adjusted(24, 0, -24, 0)
        needed = self._painter.boundingRect(room, flags, text)
        self._painter.fillRect(needed.adjusted(-6, -3, 6, 3), QColor(self._colours.card))
        self._painter.setPen(QColor(self._colours.secondary))
        self._painter.drawText(room, flags, text)

    def _caption(self) -> QRect:
        """The line above the picture."""
        return QRect(self._area.left(), self._area.top() - self._height - 1, self._area.width(), self._height)

    def _x_label(self, x: int, text: str) -> None:
        metrics = self._painter.fontMetrics()
        width = metrics.horizontalAdvance(text)
        left = min(max(x - width // 2, self._area.left()), self._area.right() - width + 1)
        self._painter.drawText(left, self._area.bottom() + 3 + metrics.ascent(), text)

    def _mark_text(self, x: int, top: int, text: str) -> int:
        """Write on the side with more room, on a piece of card so that it reads on any colour. Gives the next row."""
        metrics = self._painter.fontMetrics()
        left_room, right_room = x - self._area.left(), self._area.right() - x
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, max(left_room, right_room) - 12)
        width = metrics.horizontalAdvance(shown) + 8
        left = x - width - 3 if left_room >= right_room else x + 4
        place = QRect(left, top, width, self._height + 2)
        self._painter.fillRect(place, QColor(self._colours.card))
        self._painter.setPen(QColor(self._colours.text))
        self._painter.drawText(place, int(_CENTRE), shown)
        return place.bottom() + 2
