"""What both kinds of messages have in common."""

from PySide6.QtCore import QPointF, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from app.chat.conversation import Turn
from app.chat.message_text import MessageBrowser
from app.theme import Colours


def quiet_button(text: str, tip: str) -> QToolButton:
    """A button that does not ask for attention."""
    button = QToolButton()
    button.setObjectName("quiet")
    button.setText(text)
    button.setAccessibleName(tip)
    button.setToolTip(tip)
    return button


class CopyMessageButton(QToolButton):
    """Copies a message as it was written."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.setObjectName("quiet")
        self.setText("Copy")
        self.setAccessibleName(f"Copy {what}")
        self.setToolTip(f"Copy the source of {what}")


class MessageView(QWidget):
    """Base of both kinds.

    Signals:
        link_activated: an address was clicked.
        height_changed: the content became taller or shorter.
        dragged: a selection is being dragged to this position, in the view's coordinates.
    """

    link_activated = Signal(str)
    height_changed = Signal()
    dragged = Signal(object)  # QPointF

    def __init__(self, turn: Turn, browser: MessageBrowser) -> None:
        super().__init__()
        self._turn = turn
        self.browser = browser
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        browser.link_activated.connect(self.link_activated)
        browser.height_changed.connect(self.height_changed)
        browser.dragged.connect(self._on_dragged)

    @property
    def turn(self) -> Turn:
        """The turn as it was last shown."""
        return self._turn

    @property
    def has_its_height(self) -> bool:
        """Whether it is as tall as its content has to be at this width."""
        needed = self.heightForWidth(self.width()) if self.hasHeightForWidth() else self.sizeHint().height()
        return self.height() == needed

    def show_turn(self, turn: Turn) -> None:
        """Show a new state of the turn."""
        raise NotImplementedError

    def set_colours(self, colours: Colours) -> None:
        """Change to other colours."""

    def set_available_width(self, width_px: int) -> None:
        """How wide the transcript is."""

    @Slot()
    def copy_source(self) -> None:
        """Put the raw text on the clipboard."""
        QGuiApplication.clipboard().setText(self._turn.text)

    @Slot(object)
    def _on_dragged(self, position: QPointF) -> None:
        self.dragged.emit(QPointF(self.browser.mapTo(self, position.toPoint())))
