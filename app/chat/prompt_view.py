"""What the user wrote: a bubble on the right."""

from PySide6.QtCore import QEvent, Qt, Slot
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout

from app.chat.conversation import Turn
from app.chat.message_text import PlainText
from app.chat.message_view import CopyMessageButton, MessageView, quiet_button

FOLD_CHARS = 4_000
BUBBLE_SHARE = 0.78
BUBBLE_PADDING_PX = 12


class PromptView(MessageView):
    """What the user wrote: a bubble on the right, as wide as its text needs."""

    def __init__(self, turn: Turn) -> None:
        self._text = PlainText()
        super().__init__(turn, self._text)
        self._text.setAccessibleName("Your message")
        self._bubble = QFrame()
        self._bubble.setObjectName("userMessage")
        inner = QVBoxLayout(self._bubble)
        inner.setContentsMargins(BUBBLE_PADDING_PX, 8, BUBBLE_PADDING_PX, 8)
        inner.setSpacing(4)
        inner.addWidget(self._text)
        self._more = quiet_button("", "Show the whole message")
        self._more.clicked.connect(self._unfold)
        inner.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        self._copy = CopyMessageButton("your message")
        self._copy.clicked.connect(self.copy_source)
        keeps_place = self._copy.sizePolicy()
        keeps_place.setRetainSizeWhenHidden(True)
        self._copy.setSizePolicy(keeps_place)
        self._copy.hide()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addStretch(1)
        row.addWidget(self._copy, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self._bubble, 0, Qt.AlignmentFlag.AlignTop)
        self._available_px = 400
        self.show_turn(turn)

    def show_turn(self, turn: Turn) -> None:
        """Show the text, folded when it is long."""
        self._turn = turn
        hidden = len(turn.text) - FOLD_CHARS
        self._more.setVisible(hidden > 0)
        self._more.setText(f"Show {hidden:,} more characters")
        self._show_text(turn.text if hidden <= 0 else turn.text[:FOLD_CHARS] + " …")

    def set_available_width(self, width_px: int) -> None:
        """Fit the bubble."""
        self._available_px = width_px
        self._fit_width()

    def enterEvent(self, event: QEnterEvent) -> None:
        """Copy is offered to the pointer only: a prompt is rarely wanted back."""
        super().enterEvent(event)
        self._copy.show()

    def leaveEvent(self, event: QEvent) -> None:
        """Quiet again."""
        super().leaveEvent(event)
        self._copy.hide()

    @Slot()
    def _unfold(self) -> None:
        self._more.hide()
        self._show_text(self._turn.text)

    def _show_text(self, text: str) -> None:
        self._text.show_text(text)
        self._fit_width()

    def _fit_width(self) -> None:
        most = int(self._available_px * BUBBLE_SHARE)
        least = self._more.sizeHint().width() if self._more.isVisibleTo(self) else 0
        wanted = max(self._text.natural_width_px(), least) + 2 * BUBBLE_PADDING_PX
        self._bubble.setFixedWidth(min(most, wanted))
