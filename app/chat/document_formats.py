"""How blocks and spans look in a document: Qt's formats in the theme's colours, and the spaces between blocks."""

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QTextBlockFormat,
    QTextCharFormat,
    QTextFrameFormat,
    QTextLength,
    QTextOption,
    QTextTableFormat,
)

from app.chat.highlight import Highlighter, Look
from app.chat.markdown_blocks import Block, Code, Paragraph, Rule, Span, Style, Table
from app.theme import Colours

DEPTH_PX = 24  # a list within a list
QUOTE_PX = 16
CODE_PADDING_PX = 12
CODE_HEADER_PX = 32  # language and the Copy button
LABEL_HEIGHT_PX = 28
CODE_MARGIN_PX = 10
LINE_HEIGHT_PERCENT = 122
HEADING_POINTS = {1: 11.0, 2: 11.0}
ALIGNMENTS = {"center": Qt.AlignmentFlag.AlignHCenter, "right": Qt.AlignmentFlag.AlignRight}


class DocumentFormats:
    """Formats for one font and one set of colours."""

    def __init__(self, font: QFont, colours: Colours) -> None:
        self.colours = colours
        self.highlighter = Highlighter(colours.pygments_style, text=colours.text, background=colours.code)
        self._font = font
        self._code_font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        self._code_font.setPointSizeF(max(6.0, font.pointSizeF() - 1))
        self._metrics = QFontMetricsF(font)

    def span(self, span: Span, heading: int = 0) -> QTextCharFormat:
        """Format of a span in a paragraph or heading."""
        result = self.plain(heading)
        if Style.CODE in span.style:
            result.setFont(self._code_font, QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesAll)
            result.setBackground(QColor(self.colours.code))
        if Style.BOLD in span.style:
            result.setFontWeight(QFont.Weight.Bold)
        result.setFontItalic(Style.ITALIC in span.style)
        result.setFontStrikeOut(Style.STRIKE in span.style)
        if span.link:
            result.setAnchor(True)
            result.setAnchorHref(span.link)
            result.setToolTip(span.link)
            result.setForeground(QColor(self.colours.accent))
            result.setFontUnderline(True)
        return result

    def plain(self, heading: int = 0) -> QTextCharFormat:
        """Format of plain text."""
        result = QTextCharFormat()
        result.setFont(self._font)
        result.setForeground(QColor(self.colours.text))
        if heading:
            result.setFontWeight(QFont.Weight.Bold)
            result.setFontPointSize(HEADING_POINTS.get(heading, self._font.pointSizeF()))
        return result

    def code(self, look: Look | None = None) -> QTextCharFormat:
        """Format of a stretch of code."""
        result = QTextCharFormat()
        result.setFont(self._code_font)
        result.setForeground(QColor(look.colour if look else self.colours.text))
        if look and look.bold:
            result.setFontWeight(QFont.Weight.Bold)
        if look and look.italic:
            result.setFontItalic(True)
        return result

    def paragraph(self, block: Paragraph, top_px: float) -> QTextBlockFormat:
        """Format of a paragraph's block. A marker hangs left of the text, which begins at the first tab."""
        result = QTextBlockFormat()
        result.setTopMargin(top_px)
        result.setLeftMargin(indent_px(block))
        result.setLineHeight(LINE_HEIGHT_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        if block.heading:
            result.setHeadingLevel(block.heading)
        if block.marker:
            hang = max(DEPTH_PX - 4.0, self._metrics.horizontalAdvance(block.marker) + 6)
            result.setTextIndent(-hang)
            result.setTabPositions([QTextOption.Tab(hang, QTextOption.TabType.LeftTab)])
        return result

    def code_line(self, block: Code, top_px: float) -> QTextBlockFormat:
        """Format of one line of code."""
        result = QTextBlockFormat()
        result.setTopMargin(top_px)
        result.setLeftMargin(indent_px(block) + CODE_PADDING_PX)
        result.setRightMargin(CODE_PADDING_PX)
        result.setLineHeight(112, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        return result

    def hairline(self, top_px: float) -> QTextBlockFormat:
        """Format of a block that takes no room to speak of."""
        result = QTextBlockFormat()
        result.setTopMargin(top_px)
        result.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        return result

    def hairline_text(self) -> QTextCharFormat:
        """Format of the text in such a block."""
        result = QTextCharFormat()
        result.setFontPointSize(1)
        return result

    def cell(self, alignment: str) -> QTextBlockFormat:
        """Format of the text in a table's cell."""
        result = QTextBlockFormat()
        if alignment in ALIGNMENTS:
            result.setAlignment(ALIGNMENTS[alignment])
        return result

    def table(self, top_px: float, columns: int) -> QTextTableFormat:
        """Format of a table."""
        result = QTextTableFormat()
        result.setTopMargin(top_px)
        result.setBottomMargin(CODE_MARGIN_PX)  # the block after a table gets no margin of its own
        result.setBorder(1)
        result.setBorderCollapse(True)
        result.setBorderBrush(QBrush(QColor(self.colours.line)))
        result.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        result.setCellPadding(6)
        result.setCellSpacing(0)
        result.setHeaderRowCount(1)
        result.setColumnWidthConstraints([QTextLength()] * columns)
        return result


def indent_px(block: Block) -> float:
    """How far a block stands from the left."""
    if isinstance(block, Rule | Table):
        return 0.0
    return block.depth * DEPTH_PX + block.quotes * QUOTE_PX


def gap_px(previous: Block | None, block: Block) -> float:
    """Space above a block. Code frames reach beyond their text, above for the header and below for the padding."""
    if previous is None:
        return 0.0  # Qt ignores it there: see `head_px`
    return _outer_gap_px(previous, block) + (CODE_HEADER_PX if isinstance(block, Code) else 0)


def head_px(first: Block | None) -> float:
    """Space above the first block of a document."""
    return float(CODE_HEADER_PX) if isinstance(first, Code) else 0.0


def _outer_gap_px(previous: Block, block: Block) -> float:
    if isinstance(previous, Code):
        return CODE_PADDING_PX + CODE_MARGIN_PX
    if isinstance(previous, Table):
        return 0.0
    if isinstance(block, Code | Table):
        return CODE_MARGIN_PX
    if isinstance(block, Rule) or isinstance(previous, Rule):
        return CODE_MARGIN_PX
    if block.heading:
        return 14.0
    if block.marker and previous.depth:
        return 4.0
    return 6.0 if previous.heading or block.depth else 8.0
