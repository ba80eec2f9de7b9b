"""Writes blocks into a QTextDocument and keeps it up to date with the least change.

What has not changed is not touched, and text that only grew is only appended to: so a reader's selection, the scroll
position and the layout of everything above stay as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from PySide6.QtGui import QColor, QFont, QTextBlockFormat, QTextCharFormat, QTextCursor, QTextDocument, QTextTable

from app.chat.document_formats import DocumentFormats, gap_px, head_px
from app.chat.highlight import Run, language_of
from app.chat.markdown_blocks import Block, Code, Paragraph, Rule, Spans, Table
from app.chat.markdown_stream import Change
from app.theme import Colours

COLOURED_AT_ONCE_LINES = 40
HEADING_CELL = 6
KEEP = QTextCursor.MoveMode.KeepAnchor


@dataclass(slots=True)
class Entry:
    """A block as it stands in the document. Positions count UTF-16 units, as Qt does.

    Attributes:
        start: where the block's first insertion happened; removing from here on removes the block.
        text: where its own text begins.
        coloured: how many characters of code have their colours.
        pieces: how often the code grew; code that came in pieces is coloured once more as a whole.
    """

    block: Block
    start: int
    text: int
    coloured: int = 0
    pieces: int = 1


def utf16_length(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class DocumentWriter:
    """Owns the content of one document."""

    def __init__(self, document: QTextDocument, font: QFont, colours: Colours) -> None:
        self._document = document
        self._font = font
        self._formats = DocumentFormats(font, colours)
        self._entries: list[Entry] = []

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What stands in the document."""
        return tuple(entry.block for entry in self._entries)

    @property
    def entries(self) -> Sequence[Entry]:
        """The same with its places, in order."""
        return self._entries

    def set_colours(self, colours: Colours) -> None:
        """Write everything anew in other colours."""
        blocks = self.blocks
        self._formats = DocumentFormats(self._font, colours)
        self.apply(Change(0, ()))
        self.apply(Change(0, blocks))

    def apply(self, change: Change) -> None:
        """Bring the document to the changed blocks."""
        index, blocks = self._skip_equal(change)
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        try:
            if blocks and index < len(self._entries):
                self._truncate(cursor, index + 1)
                if self._extend(cursor, self._entries[index], blocks[0]):
                    index, blocks = index + 1, blocks[1:]
            self._truncate(cursor, index)
            for block in blocks:
                self._write(cursor, block)
            self._make_head()
            self._colour_short_code(cursor, index)
        finally:
            cursor.endEditBlock()

    def _make_head(self) -> None:
        """Room above the first block: Qt ignores a block's own margin at the top of a document."""
        frame = self._document.rootFrame()
        shape = frame.frameFormat()
        top_px = head_px(self._entries[0].block if self._entries else None)
        if shape.topMargin() != top_px:
            shape.setTopMargin(top_px)
            frame.setFrameFormat(shape)

    def _skip_equal(self, change: Change) -> tuple[int, tuple[Block, ...]]:
        same = 0
        for entry, block in zip(self._entries[change.keep :], change.blocks, strict=False):
            if entry.block != block:
                break
            same += 1
        return change.keep + same, change.blocks[same:]

    def _truncate(self, cursor: QTextCursor, count: int) -> None:
        """Leave only the first `count` blocks."""
        if count >= len(self._entries):
            return
        cursor.setPosition(self._entries[count].start)
        cursor.movePosition(QTextCursor.MoveOperation.End, KEEP)
        cursor.removeSelectedText()
        del self._entries[count:]
        self._mend_last_format(cursor)

    def _mend_last_format(self, cursor: QTextCursor) -> None:
        """An empty block takes the format of what was removed behind it."""
        if cursor.block().length() > 1:
            return
        if not self._entries:
            cursor.setBlockFormat(QTextBlockFormat())
            cursor.setBlockCharFormat(QTextCharFormat())
            return
        last, before = self._entries[-1].block, self._entries[-2].block if len(self._entries) > 1 else None
        match last:
            case Paragraph():
                cursor.setBlockFormat(self._formats.paragraph(last, gap_px(before, last)))
            case Code():
                first = "\n" not in last.text
                cursor.setBlockFormat(self._formats.code_line(last, gap_px(before, last) if first else 0))
            case Rule():
                cursor.setBlockFormat(self._formats.hairline(gap_px(before, last)))
            case Table():
                self._shrink_block(cursor)

    @property
    def _at_fresh_block(self) -> bool:
        """Whether the document ends in an empty block that belongs to nobody."""
        return not self._entries or isinstance(self._entries[-1].block, Table)

    def _write(self, cursor: QTextCursor, block: Block) -> None:
        previous = self._entries[-1].block if self._entries else None
        top_px = gap_px(previous, block)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        entry = Entry(block, cursor.position(), cursor.position())
        match block:
            case Paragraph():
                self._begin_block(cursor, self._formats.paragraph(block, top_px), self._formats.plain(block.heading))
                entry.text = cursor.position()
                if block.marker:
                    cursor.insertText(f"{block.marker}\t", self._formats.plain())
                self._insert_spans(cursor, block.spans, block.heading)
            case Code():
                self._begin_block(cursor, self._formats.code_line(block, top_px), self._formats.code())
                entry.text = cursor.position()
                self._insert_code(cursor, block, block.text)
            case Rule():
                self._begin_block(cursor, self._formats.hairline(top_px), self._formats.hairline_text())
                entry.text = cursor.position()
            case Table():
                self._insert_table(cursor, block, top_px)
        self._entries.append(entry)

    def _begin_block(self, cursor: QTextCursor, block: QTextBlockFormat, chars: QTextCharFormat) -> None:
        if self._at_fresh_block:
            cursor.setBlockFormat(block)
            cursor.setBlockCharFormat(chars)
        else:
            cursor.insertBlock(block, chars)

    def _insert_spans(self, cursor: QTextCursor, spans: Spans, heading: int) -> None:
        for span in spans:
            cursor.insertText(span.text, self._formats.span(span, heading))

    def _insert_code(self, cursor: QTextCursor, block: Code, text: str) -> None:
        """At the end of the document; the first line goes into the block that is there."""
        first, newline, others = text.partition("\n")
        cursor.insertText(first, self._formats.code())
        if newline:
            cursor.insertBlock(self._formats.code_line(block, 0), self._formats.code())
            cursor.insertText(others, self._formats.code())

    def _insert_table(self, cursor: QTextCursor, block: Table, top_px: float) -> None:
        columns = len(block.alignments)
        table = cursor.insertTable(len(block.rows), columns, self._formats.table(top_px, columns))
        for row in range(len(block.rows)):
            self._fill_row(table, row, block)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        self._shrink_block(cursor)

    def _fill_row(self, table: QTextTable, row: int, block: Table) -> None:
        for column, spans in enumerate(block.rows[row]):
            cell = table.cellAt(row, column)
            if row == 0:
                head = cell.format()
                head.setBackground(QColor(self._formats.colours.code))
                cell.setFormat(head)
            cursor = cell.firstCursorPosition()
            cursor.setPosition(cell.lastCursorPosition().position(), KEEP)
            cursor.removeSelectedText()
            cursor.setBlockFormat(self._formats.cell(block.alignments[column]))
            cursor.setBlockCharFormat(self._formats.plain())
            self._insert_spans(cursor, spans, HEADING_CELL if row == 0 else 0)

    def _extend_table(self, cursor: QTextCursor, old: Table, new: Table) -> None:
        """Rows came, and the last one may have changed."""
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.movePosition(QTextCursor.MoveOperation.PreviousBlock)
        table = cursor.currentTable()
        first = len(old.rows) - 1
        if len(new.rows) > len(old.rows):
            table.appendRows(len(new.rows) - len(old.rows))
        for row in range(first if old.rows[first] != new.rows[first] else first + 1, len(new.rows)):
            self._fill_row(table, row, new)

    def _shrink_block(self, cursor: QTextCursor) -> None:
        cursor.setBlockFormat(self._formats.hairline(0))
        cursor.setBlockCharFormat(self._formats.hairline_text())

    def _extend(self, cursor: QTextCursor, entry: Entry, block: Block) -> bool:
        """Turn the last block into `block` by changing its end only, if that can be done."""
        match entry.block, block:
            case Paragraph(), Paragraph() if replace(entry.block, spans=()) == replace(block, spans=()):
                self._change_spans(cursor, entry, entry.block, block)
            case Code(old), Code(new) if replace(entry.block, text=new) == block and new.startswith(old):
                cursor.movePosition(QTextCursor.MoveOperation.End)
                self._insert_code(cursor, block, new[len(old) :])
                entry.block = block
                entry.pieces += 1
                self._colour_new_lines(cursor, entry, new.rfind("\n") + 1)
            case Table(), Table() if _has_grown(entry.block, block):
                self._extend_table(cursor, entry.block, block)
            case _:
                return False
        entry.block = block
        return True

    def _change_spans(self, cursor: QTextCursor, entry: Entry, old: Paragraph, block: Paragraph) -> None:
        same, rest = _common_start(old.spans, block.spans)
        marker = utf16_length(block.marker) + 1 if block.marker else 0
        cursor.setPosition(entry.text + marker + same)
        cursor.movePosition(QTextCursor.MoveOperation.End, KEEP)
        cursor.removeSelectedText()
        self._insert_spans(cursor, rest, block.heading)

    def _colour_short_code(self, cursor: QTextCursor, first: int) -> None:
        """Colour new code at once where that takes no time; the last line of the last block may still grow."""
        for entry in self._entries[first:]:
            if isinstance(entry.block, Code) and entry.block.text.count("\n") <= COLOURED_AT_ONCE_LINES:
                text = entry.block.text
                self._colour_new_lines(cursor, entry, text.rfind("\n") + 1 if entry is self._entries[-1] else len(text))

    def _colour_new_lines(self, cursor: QTextCursor, entry: Entry, end: int) -> None:
        """Colour code from where the colours end, up to `end`, taking it for code of its own."""
        assert isinstance(entry.block, Code)
        start, entry.coloured = entry.coloured, max(entry.coloured, end)
        piece = entry.block.text[start:end]
        if not piece:
            return
        offset = entry.text + utf16_length(entry.block.text[:start])
        for place, run in _places(piece, self._formats.highlighter.runs(piece, language_of(entry.block.language))):
            _set_format(cursor, offset + place.start, place.length, self._formats.code(run.look))

    def colour_code(self, count: int) -> Iterator[None]:
        """Colour, bit by bit, the code in the first `count` blocks that was not seen as a whole yet."""
        for entry in self._entries[:count]:
            if isinstance(entry.block, Code) and (entry.pieces > 1 or entry.coloured < len(entry.block.text)):
                yield from self._colour_whole(entry, entry.block)

    def _colour_whole(self, entry: Entry, block: Code) -> Iterator[None]:
        done = 0
        runs = self._formats.highlighter.runs(block.text, language_of(block.language))
        for place, run in _places(block.text, runs):
            if entry not in self._entries or entry.block is not block:
                return
            cursor = QTextCursor(self._document)
            if place.start > done:
                _set_format(cursor, entry.text + done, place.start - done, self._formats.code())
            _set_format(cursor, entry.text + place.start, place.length, self._formats.code(run.look))
            done = place.start + place.length
            yield
        entry.coloured, entry.pieces = len(block.text), 1


def _has_grown(old: Table, new: Table) -> bool:
    count = len(old.rows)
    # The heading's cells look different, so a table that has only that is written anew.
    return old.alignments == new.alignments and 1 < count <= len(new.rows) and old.rows[:-1] == new.rows[: count - 1]


def _set_format(cursor: QTextCursor, start: int, length: int, chars: QTextCharFormat) -> None:
    cursor.setPosition(start)
    cursor.setPosition(start + length, KEEP)
    cursor.setCharFormat(chars)


def _places(code: str, runs: Iterable[Run]) -> Iterator[tuple[Run, Run]]:
    """Each run as UTF-16 units, and as it was."""
    seen, units = 0, 0
    for run in runs:
        units += utf16_length(code[seen : run.start])
        length = utf16_length(code[run.start : run.start + run.length])
        yield replace(run, start=units, length=length), run
        seen, units = run.start + run.length, units + length


def _common_start(old: Spans, new: Spans) -> tuple[int, Spans]:
    """How many UTF-16 units two paragraphs share from the beginning, and the spans that follow in the new one."""
    same = 0
    for index, span in enumerate(new):
        before = old[index] if index < len(old) else None
        if before is None or (before.style, before.link) != (span.style, span.link):
            return same, new[index:]
        if before.text == span.text:
            same += utf16_length(span.text)
            continue
        shared = _common_length(before.text, span.text)
        same += utf16_length(span.text[:shared])
        return same, (replace(span, text=span.text[shared:]), *new[index + 1 :])
    return same, ()


def _common_length(a: str, b: str) -> int:
    if b.startswith(a):
        return len(a)
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
