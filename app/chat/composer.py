"""Where a prompt is typed: a field that grows, the context line, and the one button that sends or stops."""

import math

from PySide6.QtCore import QMimeData, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFontMetricsF, QKeyEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from app.chat.context_use import ContextUse
from app.widgets import ElidedLabel

MIN_LINES = 2
MAX_LINES = 8
FRAME_PX = 22  # border and padding, above and below
MAX_PASTE_CHARS = 200_000  # far beyond any context; more in one line would hold up the window
HINT_MS = 6000
ENTER_KEYS = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class PromptField(QPlainTextEdit):
    """A plain text field in which Enter means "send".

    Signals:
        send_asked: Enter or Ctrl+Enter was pressed.
        paste_cut: a paste was longer than the field takes; carries its length.
    """

    send_asked = Signal()
    paste_cut = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Message")
        self.setPlaceholderText("Message…   Enter sends, Shift+Enter breaks the line")
        self.setToolTip("Enter or Ctrl+Enter sends, Shift+Enter breaks the line")
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().documentLayout().documentSizeChanged.connect(self._fit_height)
        self._fit_height()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter sends, unless an input method is still composing a character."""
        shift = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        if event.key() not in ENTER_KEYS or shift or self.is_composing:
            super().keyPressEvent(event)
        else:
            self.send_asked.emit()

    @property
    def is_composing(self) -> bool:
        """Whether an input method holds text that is not entered yet."""
        return bool(self.textCursor().block().layout().preeditAreaText())

    def insertFromMimeData(self, source: QMimeData) -> None:  # noqa: N802 - Qt's spelling
        """Paste text only, and not more than any model could read."""
        text = source.text()
        if len(text) > MAX_PASTE_CHARS:
            self.paste_cut.emit(len(text))
        self.insertPlainText(text[:MAX_PASTE_CHARS])

    def sizeHint(self) -> QSize:
        """As tall as the text."""
        return QSize(300, self.height())

    @Slot()
    def _fit_height(self) -> None:
        # The layout of plain text counts in lines.
        lines = round(self.document().size().height())
        line_px = math.ceil(QFontMetricsF(self.font()).height())
        height = min(max(lines, MIN_LINES), MAX_LINES) * line_px + FRAME_PX
        if height != self.height():
            self.setFixedHeight(height)


class Composer(QWidget):
    """The field and what belongs to it.

    Signals:
        submitted: a prompt is to be sent. The field keeps it until `clear` is called.
        stop_requested: the answer in view is to be stopped.
        draft_changed: the text was changed.
    """

    submitted = Signal(str)
    stop_requested = Signal()
    draft_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_running = False
        self._context_text = ""
        self._hint = ""
        self.field = PromptField()
        self.setFocusProxy(self.field)
        self._context = ElidedLabel()
        self._context.setObjectName("secondary")
        self._context.setAccessibleName("Context")
        self._send = _button("Send", "Send the message (Enter)")
        self._send.setObjectName("primary")
        self._stop = _button("Stop  Esc", "Stop the answer, keep its text (Esc)")
        self._stop.setAccessibleName("Stop")
        self._hint_timer = QTimer(self, singleShot=True, interval=HINT_MS)
        self._hint_timer.timeout.connect(self._drop_hint)
        self._lay_out()
        self.field.send_asked.connect(self._submit)
        self.field.textChanged.connect(self._on_text_changed)
        self.field.paste_cut.connect(self._on_paste_cut)
        self._send.clicked.connect(self._submit)
        self._stop.clicked.connect(self.stop_requested)
        self._on_text_changed()

    def _lay_out(self) -> None:
        place = QWidget()
        place.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._buttons = QStackedLayout(place)  # both take the same place, so nothing moves
        self._buttons.setContentsMargins(0, 0, 0, 0)
        self._buttons.addWidget(self._send)
        self._buttons.addWidget(self._stop)
        row = QHBoxLayout()
        row.setContentsMargins(2, 0, 0, 0)
        row.addWidget(self._context, 1)
        row.addWidget(place)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.field)
        column.addLayout(row)

    @property
    def text(self) -> str:
        """What is typed."""
        return self.field.toPlainText()

    def set_text(self, text: str) -> None:
        """Show a draft, ready to go on typing."""
        if text != self.text:
            self.field.setPlainText(text)
            self.field.moveCursor(self.field.textCursor().MoveOperation.End)

    def clear(self) -> None:
        """The prompt was sent."""
        self.field.clear()
        self._drop_hint()

    def set_running(self, running: bool) -> None:
        """Whether the conversation in view is being answered: then the button stops."""
        self._is_running = running
        shown, other = (self._stop, self._send) if running else (self._send, self._stop)
        had_focus = other.hasFocus()
        self._buttons.setCurrentWidget(shown)
        if had_focus:
            shown.setFocus()
        if not running:
            self._drop_hint()

    def set_context(self, use: ContextUse) -> None:
        """Show how full the context is."""
        self._context_text = use.text
        self._show_line()

    def show_hint(self, text: str) -> None:
        """Say something in the context's place for a while."""
        self._hint = text
        self._hint_timer.start()
        self._show_line()

    @Slot()
    def _submit(self) -> None:
        if self._is_running:
            self.show_hint("Still answering: Esc stops it, your text stays.")
        elif self.text.strip():
            self.submitted.emit(self.text)

    @Slot()
    def _on_text_changed(self) -> None:
        self._send.setEnabled(bool(self.text.strip()))
        self.draft_changed.emit(self.text)

    @Slot(int)
    def _on_paste_cut(self, length: int) -> None:
        self.show_hint(f"{length:,} characters are more than fit; the first {MAX_PASTE_CHARS:,} were pasted.")

    @Slot()
    def _drop_hint(self) -> None:
        self._hint = ""
        self._hint_timer.stop()
        self._show_line()

    def _show_line(self) -> None:
        self._context.setText(self._hint or self._context_text)


def _button(text: str, tip: str) -> QPushButton:
    button = QPushButton(text)
    button.setAccessibleName(text)
    button.setToolTip(tip)
    return button
