"""The card above the chat while a scenario is played: what it is, and how many of its requests have ended."""

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QLabel, QProgressBar, QToolButton, QWidget

from app.widgets import Card

PLAYING = (
    "They go to the engine at once and belong to no conversation: the graphs beside show how they are answered. "
    "You can chat meanwhile."
)
PLAYED = "All have ended; the graphs beside show how they were answered."


class ScenarioCard(Card):
    """Shows one scenario.

    Args:
        name, title: what it is called, and what it shows.
        total: how many requests it has.
    """

    def __init__(self, name: str, title: str, total: int, parent: QWidget | None = None) -> None:
        super().__init__(f"Scenario {name}", parent)
        self._what = title
        self._total = total
        self._text = QLabel(wordWrap=True)
        self._text.setObjectName("secondary")
        self._bar = QProgressBar(maximum=total, textVisible=False)
        self._bar.setAccessibleName("Requests that have ended")
        self.close_button = QToolButton()
        self.close_button.setObjectName("quiet")
        self.close_button.setText("Close")
        self.close_button.setAccessibleName("Close the card of the scenario")
        self.close_button.setToolTip("Close this card; the requests go on")
        self.close_button.clicked.connect(self.hide)
        self.header.addWidget(self.close_button)
        self.body.addWidget(self._text)
        self.body.addWidget(self._bar)
        self.show_ended(0)

    @Slot(int)
    def show_ended(self, ended: int) -> None:
        """So many of its requests have ended."""
        self.values.setText(f"{ended} of {self._total} done")
        self._text.setText(f"{self._what}. {PLAYED if ended == self._total else PLAYING}")
        self._bar.setValue(ended)
