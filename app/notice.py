"""Sentences above everything else, that stay until they are dismissed. Knows only text."""

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from app.theme import SPACE_PX


class NoticeBar(QFrame):
    """Shows one sentence at a time, the oldest first."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self.setAccessibleName("Notice")
        self._waiting: list[str] = []
        self._text = QLabel(wordWrap=True)
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        dismiss = QPushButton("Dismiss")
        dismiss.setToolTip("I have read this")
        dismiss.setAccessibleName("Dismiss the notice")
        dismiss.clicked.connect(self.dismiss)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, 6, 6, 6)
        layout.addWidget(self._text, 1)
        layout.addWidget(dismiss, 0, Qt.AlignmentFlag.AlignTop)
        self.hide()

    @property
    def text(self) -> str:
        """What is shown; empty when nothing is."""
        return self._waiting[0] if self._waiting else ""

    @Slot(str)
    def add(self, sentence: str) -> None:
        """Show a sentence, or queue it behind the others. Empty ones and repetitions are dropped."""
        if sentence and sentence not in self._waiting:
            self._waiting.append(sentence)
            self._show()

    @Slot()
    def dismiss(self) -> None:
        """Go on to the next."""
        self._waiting = self._waiting[1:]
        self._show()

    def _show(self) -> None:
        self._text.setText(self.text)
        self.setVisible(bool(self._waiting))
