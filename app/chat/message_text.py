"""The text of one message: as tall as its content, selectable, never scrolling by itself, never reading a file."""

from PySide6.QtCore import QByteArray, QMimeData, QSize, Qt, QUrl, Signal, Slot
from PySide6.QtGui import (
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser, QWidget

from app.chat.markdown_blocks import BREAK_OPPORTUNITY, plain_text

SCROLL_KEYS = frozenset({Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End})


class MessageBrowser(QTextBrowser):
    """A text view as tall as its document.

    Signals:
        height_changed: the content became taller or shorter.
        link_activated: an http or https address was clicked.
        dragged: a selection is being made; the position in the view's coordinates.
    """

    height_changed = Signal()
    link_activated = Signal(str)
    dragged = Signal(object)  # QPointF

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.viewport().setAutoFillBackground(False)
        self.setUndoRedoEnabled(False)
        self.setOpenLinks(False)
        self.setTabChangesFocus(True)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        self.document().documentLayout().documentSizeChanged.connect(self._fit_height)
        self.anchorClicked.connect(self._on_anchor)
        self._below_px = 0.0  # what is drawn below the last line

    def loadResource(self, _kind: int, _name: QUrl | str) -> object:
        """Nothing that a model writes may make this program read a file or the network."""
        return QByteArray()  # valid and empty: for None, Qt reads local files by itself

    def createMimeDataFromSelection(self) -> QMimeData:
        """Plain text only: what is pasted elsewhere should not bring this window's fonts and colours along."""
        data = QMimeData()
        data.setText(selected_text(self.textCursor()))
        return data

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The transcript scrolls, not one message."""
        event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """So do the keys that scroll."""
        if event.key() in SCROLL_KEYS:
            event.ignore()
        else:
            super().keyPressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Let the transcript scroll when a selection is dragged beyond it."""
        super().mouseMoveEvent(event)
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.dragged.emit(event.position())

    def sizeHint(self) -> QSize:
        """As tall as the document."""
        return QSize(200, self.height())

    def minimumSizeHint(self) -> QSize:
        """Any width will do."""
        return QSize(40, 0)

    def content_height_px(self) -> int:
        """Height of the document and what is drawn below it."""
        return int(self.document().size().height() + self._below_px + 0.999)

    @Slot()
    def _fit_height(self) -> None:
        height = self.content_height_px()
        if height != self.height():
            self.setFixedHeight(height)
            self.height_changed.emit()

    @Slot(QUrl)
    def _on_anchor(self, url: QUrl) -> None:
        if url.scheme() in ("http", "https"):
            self.link_activated.emit(url.toString())


class PlainText(MessageBrowser):
    """Text as it was typed."""

    def show_text(self, text: str) -> None:
        """Replace the content."""
        self._lines = [plain_text(line) for line in text.split("\n")]
        self.setPlainText("\n".join(self._lines))
        self._fit_height()

    def natural_width_px(self) -> int:
        """The width at which no line needs to be broken."""
        metrics = QFontMetricsF(self.font())
        return int(max(metrics.horizontalAdvance(line) for line in self._lines) + 4)


def selected_text(cursor: QTextCursor) -> str:
    """What is selected, as plain text: cells of a table's row are divided by tabs, helper characters are left out."""
    parts: list[str] = []
    block = cursor.document().findBlock(cursor.selectionStart())
    while block.isValid() and block.position() <= cursor.selectionEnd():
        if not _is_helper(block):
            parts += [_separator(block) if parts else "", _selected_part(cursor, block)]
        block = block.next()
    return "".join(parts)


def _selected_part(cursor: QTextCursor, block: QTextBlock) -> str:
    part = QTextCursor(block)
    part.setPosition(max(cursor.selectionStart(), block.position()))
    end = min(cursor.selectionEnd(), block.position() + block.length() - 1)
    part.setPosition(max(end, part.position()), QTextCursor.MoveMode.KeepAnchor)
    text = part.selectedText().replace("\u2028", "\n").replace(BREAK_OPPORTUNITY, "")
    has_marker = bool(block.blockFormat().tabPositions())
    return text.replace("\t", " ", 1) if has_marker else text


def _is_helper(block: QTextBlock) -> bool:
    """Blocks that carry no text of the message: lines, and those that Qt needs around tables."""
    if block.length() > 1:
        return False
    fixed = block.blockFormat().lineHeightType() == QTextBlockFormat.LineHeightTypes.FixedHeight.value
    before_table = block.next().isValid() and QTextCursor(block.next()).currentTable() is not None
    return fixed or (before_table and QTextCursor(block).currentTable() is None)


def _separator(block: QTextBlock) -> str:
    """What stands between a block and the one before it."""
    table = QTextCursor(block).currentTable()
    is_next_cell = table is not None and table.cellAt(block.position()).column() > 0
    return "\t" if is_next_cell else "\n"
