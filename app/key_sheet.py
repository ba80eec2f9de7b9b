"""The sheet of all keys."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QGridLayout, QLabel, QVBoxLayout, QWidget

from app.close_row import close_row
from app.theme import SPACE_PX


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key: where it works, what to press, what it does."""

    place: str
    keys: str
    meaning: str


class KeySheet(QDialog):
    """Keys by place, read by nobody who does not want to. Esc closes it."""

    def __init__(self, rows: Sequence[KeyRow], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keys")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        grid = QGridLayout()
        grid.setHorizontalSpacing(SPACE_PX * 2)
        grid.setVerticalSpacing(6)
        line = 0
        for place in dict.fromkeys(row.place for row in rows):
            title = QLabel(place)
            font = title.font()
            font.setBold(True)
            title.setFont(font)
            grid.setRowMinimumHeight(line, SPACE_PX if line else 0)
            grid.addWidget(title, line + 1, 0, 1, 2)
            line += 2
            for row in (row for row in rows if row.place == place):
                grid.addWidget(QLabel(row.keys), line, 0)
                meaning = QLabel(row.meaning)
                meaning.setObjectName("secondary")
                grid.addWidget(meaning, line, 1)
                line += 1
        self.setMinimumWidth(320)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX)
        layout.setSpacing(SPACE_PX)
        layout.addLayout(grid)
        layout.addStretch(1)
        layout.addLayout(close_row(self))
