"""The one base of all plots: when it is painted, in which colours, and what the mouse reads.

A plot is one image (see `raster`) in a pyqtgraph view with numbers, levels and marks painted over it (see `overlay`).
The image is painted as it is, one byte for each pixel: as an item of the scene it cost twice the time of a frame.
Nothing is drawn while nobody can see it. No OpenGL: a context of ours would show up in our own memory graph.
"""

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QFont,
    QImage,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QGraphicsView, QToolTip

from app.plots.frame import Frame, Margins
from app.plots.overlay import Overlay
from app.plots.raster import Pixels
from app.theme import Theme


class LivePlot(pg.GraphicsView):  # type: ignore[misc]
    """A picture with axes. Subclasses set `frame` and the image in `draw`, and answer `hover_text`."""

    def __init__(self, theme: Theme, margins: Margins | None = None) -> None:
        super().__init__(useOpenGL=False, background=None)
        self.frame = Frame()
        self.caption_tip = ""  # explains the frame's caption to a mouse over it
        self._theme = theme
        self._margins = margins or Margins()
        self._message = ""
        self._stale = ""
        self._repaints = 0
        self._dirty = True
        self._mouse: QPoint | None = None
        self._area = QRect()
        self._image_bytes: Pixels | None = None  # what the image reads
        self._image = QImage()
        self._image_place = QRect()
        self.setCacheMode(QGraphicsView.CacheModeFlag.CacheNone)
        self.setViewportUpdateMode(QGraphicsView.ViewportUpdateMode.FullViewportUpdate)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        # It paints all of itself: what is behind it need not be painted for each frame.
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        theme.changed.connect(self.recolour)
        self.recolour()

    @property
    def repaints(self) -> int:
        """How often it was painted."""
        return self._repaints

    @property
    def is_seen(self) -> bool:
        """Whether painting is of any use now."""
        return bool(self.isVisible() and not self.window().isMinimized())

    @property
    def needs_drawing(self) -> bool:
        """Whether something came that has not been drawn yet, and somebody can see it."""
        return self._dirty and self.is_seen

    @property
    def area(self) -> QRect:
        """Where the picture stands, in pixels of the widget."""
        return self._area

    @property
    def tick_room(self) -> int:
        """How many numbers fit beside the picture, one above the other."""
        return max(1, self.area.height() // 26)

    @property
    def image_size(self) -> tuple[int, int]:
        """Width and height of an image that fills the picture, in pixels of the screen."""
        ratio, area = self.devicePixelRatioF(), self._area
        return round(area.width() * ratio), round(area.height() * ratio)

    @property
    def message(self) -> str:
        """The words that stand instead of a picture; empty while there is one."""
        return self._message

    @property
    def stale(self) -> str:
        """Why the picture is grey; empty while it is not."""
        return self._stale

    def set_message(self, text: str) -> None:
        """Show words instead of a picture; empty text brings the picture back."""
        if text != self._message:
            self._message = text
            self.mark_dirty()

    def set_stale(self, text: str) -> None:
        """Grey the picture and say why; empty text ends it."""
        if text != self._stale:
            self._stale = text
            self.mark_dirty()

    def set_margins(self, margins: Margins) -> None:
        """Leave other room around the picture."""
        self._margins = margins
        self._area = margins.inside(self.width(), self.height())

    def mark_dirty(self) -> None:
        """Remember that the data changed; costs nothing until `refresh`."""
        self._dirty = True

    def refresh(self) -> None:
        """Draw what changed, if anybody can see it."""
        if not self.needs_drawing:
            return
        self._dirty = False
        if not self._message and min(self.image_size) > 0:
            self.draw()
        self.viewport().update()
        self._show_reading()

    def recolour(self) -> None:
        """Take the theme's present colours."""
        names = ("#00000000", *self.lookup_colours())  # number 0 is paper: the card shows through
        self._table = [QColor(name).rgba() for name in names]
        self.mark_dirty()
        self.refresh()

    # What subclasses do

    def draw(self) -> None:
        """Set the frame and the image from the data."""

    def hover_text(self, _x: float, _y: float) -> str:
        """What stands at these values, in words; empty for nothing."""
        return ""

    def lookup_colours(self) -> Sequence[str]:
        """The colours of the image's numbers, from 1 on, in the theme's present set."""
        return ()

    def show_pixels(self, pixels: Pixels, place: QRect | None = None) -> None:
        """Put an image on the card; it fills the picture unless a place is told."""
        self._image_bytes = np.ascontiguousarray(pixels)
        height, width = pixels.shape
        self._image = QImage(self._image_bytes.data, width, height, width, QImage.Format.Format_Indexed8)
        self._image.setColorTable(self._table)
        self._image_place = place or self.area

    def close(self) -> bool:
        """Close like any widget; the base class would take its own viewport away and crash in the next paint."""
        return QGraphicsView.close(self)

    # What Qt asks

    def paintEvent(self, event: QPaintEvent) -> None:
        """Count and paint."""
        self._repaints += 1
        super().paintEvent(event)

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Draw for the new size at once, or the old picture would be seen stretched."""
        super().resizeEvent(event)
        if event is not None:  # the base class calls it with None while it is being built
            self.set_margins(self._margins)
            self.mark_dirty()
            self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while it was hidden, once the window is shown, too."""
        super().showEvent(event)
        QTimer.singleShot(0, self.refresh)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Read the values under the mouse."""
        self._mouse = event.position().toPoint()
        self._show_reading()
        self.viewport().update()

    def leaveEvent(self, _event: QEvent) -> None:
        """Stop reading."""
        self._mouse = None
        self.viewport().update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Clicks belong to what is around."""
        event.ignore()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Clicks belong to what is around."""
        event.ignore()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Clicks belong to what is around."""
        event.ignore()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel scrolls what is around."""
        event.ignore()

    def drawBackground(self, painter: QPainter, rect: QRectF) -> None:  # noqa: N802 - Qt's spelling
        """The card and its hairlines, below the picture."""
        painter.fillRect(rect, QColor(self._theme.colours.card))
        if not self._message:
            self._overlay(painter).hairlines()
            if not self._image.isNull():
                painter.drawImage(self._image_place, self._image)

    def drawForeground(self, painter: QPainter, _rect: QRectF) -> None:  # noqa: N802 - Qt's spelling
        """Numbers, levels, marks and words, above the picture."""
        painter.setFont(self._number_font())
        overlay = self._overlay(painter)
        if self._message:
            painter.setFont(self.font())
            overlay.words(self.rect(), self._message)
            return
        overlay.numbers()
        overlay.levels()
        overlay.marks()
        if self._stale:
            overlay.veil()
            overlay.words(self.area, self._stale)
        if self._mouse is not None and self.area.contains(self._mouse):
            self.paint_reading(overlay, self._mouse)

    def paint_reading(self, overlay: Overlay, mouse: QPoint) -> None:
        """Show which value is being read."""
        overlay.reading(mouse.x())

    def _overlay(self, painter: QPainter) -> Overlay:
        return Overlay(painter, self.area, self.frame, self._theme.colours)

    def _number_font(self) -> QFont:
        """A point smaller than the text around."""
        font = QFont(self.font())
        font.setPointSizeF(font.pointSizeF() - 1)
        return font

    def _reading(self, mouse: QPoint) -> str:
        if self.area.contains(mouse):
            return self.hover_text(*self.frame.value_at(self.area, mouse))
        return self.caption_tip if mouse.y() < self.area.top() else ""

    def _show_reading(self) -> None:
        if self._mouse is None:
            return
        text = "" if self._message else self._reading(self._mouse)
        QToolTip.showText(self.mapToGlobal(self._mouse + QPoint(12, 0)), text, self.viewport())
