"""Small widgets that every panel uses, so that a card looks the same everywhere."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QSize, Qt, QTimer, Slot
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.theme import SPACE_PX

READABLE_MS = 500


class Pacer(QObject):
    """Does something at most once in a period: at once, and at the period's end if it was asked for meanwhile.

    For numbers that change with every token: nobody reads them faster than twice a second.
    """

    def __init__(self, act: Callable[[], None], period_ms: int, parent: QObject) -> None:
        super().__init__(parent)
        self._act = act
        self._is_asked = False
        self._timer = QTimer(self, singleShot=True, interval=period_ms)
        self._timer.timeout.connect(self._on_period_over)

    def ask(self) -> None:
        """Do it, now or soon."""
        self._is_asked = self._timer.isActive()
        if not self._is_asked:
            self._act()
            self._timer.start()

    def cancel(self) -> None:
        """It has been done otherwise; the next one comes at once."""
        self._is_asked = False
        self._timer.stop()

    @Slot()
    def _on_period_over(self) -> None:
        if self._is_asked:
            self.ask()


class ElidedLabel(QLabel):
    """One line of plain text that ends in … where there is no room, with the whole text as its tooltip."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.setText(text)

    def setText(self, text: str) -> None:  # noqa: N802 - Qt's spelling
        """Show `text`; unchanged text costs nothing."""
        if text != self.text():
            super().setText(text)
            self.setToolTip(text)

    def minimumSizeHint(self) -> QSize:
        """Never force the layout to be as wide as the text."""
        return QSize(0, super().minimumSizeHint().height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw what fits."""
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), int(self.alignment()), text)


class Card(QFrame):
    """A framed panel: a bold title, the current values beside it in secondary text, and a body below.

    `values` is the text twin of the picture in the body. `header` takes buttons on the right.
    """

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self.setAccessibleName(title)
        self._title = QLabel(title)
        font = self._title.font()
        font.setBold(True)
        self._title.setFont(font)
        self.values = ElidedLabel()
        self.values.setObjectName("secondary")
        self.header = QHBoxLayout()
        self.header.setSpacing(8)
        self.header.addWidget(self._title)
        self.header.addWidget(self.values, 1)
        self.body = QVBoxLayout()
        self.body.setSpacing(6)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, 10, SPACE_PX, 10)
        layout.setSpacing(6)
        layout.addLayout(self.header)
        layout.addLayout(self.body, 1)

    def set_title(self, title: str) -> None:
        """Rename the card."""
        self._title.setText(title)
        self.setAccessibleName(title)


def format_bytes(value: int | None) -> str:
    """Bytes for people: GiB with two decimals from 1 GiB on, else MiB; "unknown" for None."""
    if value is None:
        return "unknown"
    gib = value / 2**30
    return f"{gib:.2f} GiB" if abs(gib) >= 1 else f"{value / 2**20:.0f} MiB"
