"""The text of an answer: Markdown that may still grow, with framed code that can be copied."""

import time
from collections.abc import Iterator
from itertools import islice

from PySide6.QtCore import QRectF, Qt, QTimer, Slot
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPaintEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QToolButton, QWidget

from app.chat.document_decor import CodeFrame, Decorations, code_frames
from app.chat.document_formats import CODE_PADDING_PX, LABEL_HEIGHT_PX
from app.chat.document_writer import DocumentWriter
from app.chat.highlight import language_of
from app.chat.markdown import MarkdownReader
from app.chat.markdown_blocks import BREAK_OPPORTUNITY, Code
from app.chat.markdown_stream import Change, MarkdownStream
from app.chat.message_text import MessageBrowser
from app.theme import Colours

FLUSH_SHARE = 40  # after 2 ms of writing and painting the next flush waits at least 80 ms: 2.5 % of the GUI thread
COLOURING_SLICE_S = 0.004
COPIED_MS = 1500
CARET_PX = (6, 14)


class CopyCodeButton(QToolButton):
    """Copies one block of code."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("quiet")
        self.setText("Copy")
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._frame: CodeFrame | None = None
        self._reset = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._reset.timeout.connect(self._show_ready)
        self.clicked.connect(self._copy)

    def show_code(self, frame: CodeFrame) -> None:
        """Stand in the header of a frame."""
        if frame == self._frame:
            return
        self._frame = frame
        name = f"Copy {language_of(frame.code.language) or 'code'}"
        self.setAccessibleName(name)
        self.setToolTip("Copy this code")
        size = self.sizeHint()
        x = round(frame.rect.right()) - size.width() - 2
        y = round(frame.rect.top() + (LABEL_HEIGHT_PX - size.height()) / 2)
        self.setGeometry(x, y, size.width(), size.height())
        self.show()

    def hide_code(self) -> None:
        """There is no such code any more."""
        self._frame = None
        self.hide()

    @Slot()
    def _copy(self) -> None:
        if self._frame is not None:
            QGuiApplication.clipboard().setText(self._frame.code.text.replace(BREAK_OPPORTUNITY, ""))
        self.setText("Copied")
        self._reset.start()

    @Slot()
    def _show_ready(self) -> None:
        self.setText("Copy")


class AnswerText(MessageBrowser):
    """Shows Markdown. Text that arrives faster than it can be drawn is gathered."""

    def __init__(self, reader: MarkdownReader, colours: Colours, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._reader = reader
        self._stream = MarkdownStream(reader)
        self._writer = DocumentWriter(self.document(), self.font(), colours)
        self._decorations = Decorations(colours)
        self._colours = colours
        self._buttons: list[CopyCodeButton] = []
        self._pending: list[str] = []
        self._is_growing = False
        self._flushed_s = 0.0
        self._flush_cost_s = 0.0
        self._paint_cost_s = 0.0
        # It paints its own background: the panes behind it need not be painted with each piece of text.
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self._flush_timer = QTimer(self, singleShot=True)
        self._flush_timer.timeout.connect(self.flush)
        self._colouring: Iterator[None] = iter(())
        self._coloured_blocks = 0
        self._colouring_timer = QTimer(self, interval=0)
        self._colouring_timer.timeout.connect(self._colour_slice)

    @property
    def writer(self) -> DocumentWriter:
        """What stands in the document."""
        return self._writer

    def show_text(self, text: str) -> None:
        """Replace everything by a complete text."""
        self.clear_text()
        self._pending = [text]
        self.finish()

    def clear_text(self) -> None:
        """Begin anew."""
        self._flush_timer.stop()
        self._pending.clear()
        self._stream = MarkdownStream(self._reader)
        self._apply(Change(0, ()))

    def append_text(self, text: str) -> None:
        """Let the text grow."""
        self._is_growing = True
        self._pending.append(text)
        if self._flush_timer.isActive():
            return
        wait_s = self._flushed_s + FLUSH_SHARE * (self._flush_cost_s + self._paint_cost_s) - time.perf_counter()
        if wait_s > 0:
            self._flush_timer.start(round(wait_s * 1000))
        else:
            self.flush()

    def set_growing(self, growing: bool) -> None:
        """Whether a caret stands at the end."""
        if growing != self._is_growing:
            self._is_growing = growing
            self.viewport().update()

    def finish(self) -> None:
        """The text is complete."""
        self.set_growing(growing=False)
        self._flush_timer.stop()
        if self._pending:
            self._stream.take("".join(self._pending))
            self._pending.clear()
        self._apply(self._stream.finish())

    @Slot()
    def flush(self) -> None:
        """Draw what was gathered."""
        if not self._pending:
            return
        begun_s = time.perf_counter()
        text = "".join(self._pending)
        self._pending.clear()
        self._apply(self._stream.append(text))
        self._flushed_s = time.perf_counter()
        self._flush_cost_s = self._flushed_s - begun_s

    def set_colours(self, colours: Colours) -> None:
        """Change to other colours."""
        self._colours = colours
        self._decorations = Decorations(colours)
        self._writer.set_colours(colours)
        self._place_buttons()
        self._coloured_blocks = 0
        self._colouring_timer.start()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Frames and bars behind the text, a caret behind text that grows."""
        begun_s = time.perf_counter()
        painter = QPainter(self.viewport())
        clip = QRectF(event.rect())
        painter.fillRect(clip, QColor(self._colours.background))
        self._decorations.paint(painter, self.document(), self._writer.entries, self.viewport().width(), clip)
        painter.end()
        super().paintEvent(event)
        if self._is_growing and self._writer.blocks:
            self._paint_caret()
        self._paint_cost_s = time.perf_counter() - begun_s

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Buttons keep their places in the frames."""
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._place_buttons()

    def _paint_caret(self) -> None:
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        rect = QRectF(self.cursorRect(cursor))
        painter = QPainter(self.viewport())
        painter.fillRect(QRectF(rect.left() + 1, rect.bottom() - CARET_PX[1], *CARET_PX), QColor(self._colours.text))
        painter.end()

    def _apply(self, change: Change) -> None:
        self._writer.apply(change)
        blocks = self._writer.entries
        self._below_px = CODE_PADDING_PX + 1 if blocks and isinstance(blocks[-1].block, Code) else 0
        self._fit_height()
        self._place_buttons(change.keep)
        self._coloured_blocks = min(self._coloured_blocks, change.keep)
        if self._coloured_blocks < self._num_complete_blocks:
            self._colouring_timer.start()

    @property
    def _num_complete_blocks(self) -> int:
        return len(self._writer.entries) - self._is_growing

    def _place_buttons(self, first: int = 0) -> None:
        """Put a button into the frame of each code, from the `first` block on."""
        entries = self._writer.entries
        count = sum(isinstance(entry.block, Code) for entry in islice(entries, first))
        for frame in code_frames(self.document(), islice(entries, first, None), self.viewport().width()):
            if count == len(self._buttons):
                self._buttons.append(CopyCodeButton(self.viewport()))
            self._buttons[count].show_code(frame)
            count += 1
        for button in self._buttons[count:]:
            button.hide_code()

    @Slot()
    def _colour_slice(self) -> None:
        """Colour complete code while nothing else is to be done."""
        end_s = time.perf_counter() + COLOURING_SLICE_S
        for _ in self._colouring:
            if time.perf_counter() >= end_s:
                return
        complete = self._num_complete_blocks
        if self._coloured_blocks >= complete:
            self._colouring_timer.stop()
            return
        self._colouring = self._writer.colour_code(complete)
        self._coloured_blocks = complete
