"""What is drawn behind a message's text: frames of code with their language, bars beside quotations, lines.

They are no text, so they are never selected or copied, and they change colour without a new layout.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QTextBlock, QTextDocument

from app.chat.document_formats import CODE_HEADER_PX, CODE_PADDING_PX, LABEL_HEIGHT_PX, QUOTE_PX, indent_px
from app.chat.document_writer import Entry
from app.chat.highlight import language_of
from app.chat.markdown_blocks import Block, Code, Paragraph, Rule
from app.theme import BUTTON_RADIUS_PX, Colours

QUOTE_BAR_PX = 3.0


@dataclass(frozen=True, slots=True)
class CodeFrame:
    """Where a block of code stands, in the document's coordinates."""

    code: Code
    rect: QRectF


def code_frames(document: QTextDocument, entries: Iterable[Entry], width_px: float) -> Iterator[CodeFrame]:
    """Frames of all code."""
    for entry in entries:
        if isinstance(entry.block, Code):
            yield CodeFrame(entry.block, _frame_rect(document, entry, entry.block, width_px))


def _frame_rect(document: QTextDocument, entry: Entry, code: Code, width_px: float) -> QRectF:
    first = document.findBlock(entry.text)
    last = document.findBlockByNumber(first.blockNumber() + code.text.count("\n"))
    top = _rect(document, first).top() - CODE_HEADER_PX
    bottom = _rect(document, last).bottom() + CODE_PADDING_PX
    left = indent_px(code)
    return QRectF(left, top, max(0.0, width_px - left), bottom - top)


def _rect(document: QTextDocument, block: QTextBlock) -> QRectF:
    return document.documentLayout().blockBoundingRect(block)


class Decorations:
    """Draws them in one set of colours."""

    def __init__(self, colours: Colours) -> None:
        self._colours = colours

    def paint(
        self, painter: QPainter, document: QTextDocument, entries: Sequence[Entry], width_px: float, clip: QRectF
    ) -> None:
        """Draw what lies within `clip`."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        position = document.documentLayout().hitTest(
            QPointF(0, clip.top() - CODE_HEADER_PX), Qt.HitTestAccuracy.FuzzyHit
        )
        first = max(0, bisect_right(entries, position, key=attrgetter("text")) - 1)
        for entry in islice(entries, first, None):
            block = document.findBlock(entry.text)
            if _rect(document, block).top() - CODE_HEADER_PX > clip.bottom():
                return
            match entry.block:
                case Code() as code:
                    self._paint_frame(painter, _frame_rect(document, entry, code, width_px), code)
                case Rule():
                    self._paint_rule(painter, _rect(document, block), width_px)
                case _:
                    pass
            if isinstance(entry.block, Paragraph | Code) and entry.block.quotes:
                self._paint_bars(painter, self._extent(document, entry, width_px), entry.block)

    def _extent(self, document: QTextDocument, entry: Entry, width_px: float) -> QRectF:
        if isinstance(entry.block, Code):
            return _frame_rect(document, entry, entry.block, width_px)
        return _rect(document, document.findBlock(entry.text)).adjusted(0, -6, 0, 4)

    def _paint_frame(self, painter: QPainter, rect: QRectF, code: Code) -> None:
        inner = rect.adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(QPen(QColor(self._colours.line)))
        painter.setBrush(QColor(self._colours.code))
        painter.drawRoundedRect(inner, BUTTON_RADIUS_PX, BUTTON_RADIUS_PX)
        header = QRectF(inner.left() + CODE_PADDING_PX, inner.top(), inner.width(), LABEL_HEIGHT_PX)
        painter.setPen(QColor(self._colours.secondary))
        label = language_of(code.language) or "code"
        painter.drawText(header, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), label)

    def _paint_rule(self, painter: QPainter, rect: QRectF, width_px: float) -> None:
        painter.setPen(QPen(QColor(self._colours.line)))
        y = round(rect.center().y()) + 0.5
        painter.drawLine(QPointF(0, y), QPointF(width_px, y))

    def _paint_bars(self, painter: QPainter, rect: QRectF, block: Block) -> None:
        assert isinstance(block, Paragraph | Code)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._colours.line))
        for level in range(block.quotes):
            bar = QRectF(level * QUOTE_PX, rect.top(), QUOTE_BAR_PX, rect.height())
            painter.drawRect(bar)
