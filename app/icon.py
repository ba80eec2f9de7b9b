"""The program's icon, drawn: a grid of KV blocks, some of them taken."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap

from app.theme import DARK, DATA_COLOURS, OWN_COLOUR

SIZE_PX = 128
CELLS = (  # colour number, -1 for an empty block
    (0, 0, 1),
    (0, 2, 1),
    (2, 2, -1),
)


def window_icon() -> QIcon:
    """Draw it."""
    picture = QPixmap(SIZE_PX, SIZE_PX)
    picture.fill(Qt.GlobalColor.transparent)
    colours = (OWN_COLOUR, DATA_COLOURS[1], DATA_COLOURS[3])
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(DARK.background))
    painter.drawRoundedRect(QRectF(0, 0, SIZE_PX, SIZE_PX), 24, 24)
    cell = SIZE_PX / 4
    for row, line in enumerate(CELLS):
        for column, number in enumerate(line):
            painter.setBrush(QColor(colours[number] if number >= 0 else DARK.empty_block))
            left, top = 14 + column * (cell + 2), 14 + row * (cell + 2)
            painter.drawRoundedRect(QRectF(left, top, cell, cell), 5, 5)
    painter.end()
    return QIcon(picture)
