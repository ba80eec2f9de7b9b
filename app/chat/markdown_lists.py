"""Indents of lists, as models write them, made into those that CommonMark reads as the same nesting. No Qt.

Models indent a sublist by two spaces under "1.", forget to indent code inside an item, or indent it too far. CommonMark
then flattens the list or reads the rest of the answer as code. Lines stay lines: the n-th line out is the n-th line in.
"""

import re
from dataclasses import dataclass

ITEM = re.compile(r"( *)([-+*]|\d{1,9}[.)])( +|$)")
FENCE = re.compile(r" *(`{3,}(?=[^`]*$)|~{3,})")
RULE = re.compile(r" {0,3}([-*_])( *\1){2,} *$")
BLOCK_START = re.compile(r" {0,3}(#{1,6}( |$)|>|`{3}|~{3}|\|)")
INTERRUPTING = frozenset({"-", "+", "*", "1.", "1)"})
MIN_NESTING = 2  # spaces that make an item a sub-item of the one above
MAX_OFFSET = 3  # more would be indented code


@dataclass(frozen=True, slots=True)
class _Item:
    """An open list item: where its marker and content stand, as written and as put out."""

    marker: int
    content: int
    content_out: int


@dataclass(frozen=True, slots=True)
class _Fence:
    """Open code: the marker that closes it, and how far its lines move."""

    marker: str
    shift: int
    indent_out: int

    def is_closed_by(self, text: str) -> bool:
        return len(text) >= len(self.marker) and text == self.marker[0] * len(text)


def normalise_lists(source: str) -> list[str]:
    """The lines of `source` with CommonMark's indents."""
    normaliser = _Normaliser()
    return [normaliser.line(line) for line in source.split("\n")]


class _Normaliser:
    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._fence: _Fence | None = None
        self._after_blank = True
        self._in_paragraph = False

    def line(self, line: str) -> str:
        text = line.lstrip(" \t")
        indent = len(line[: len(line) - len(text)].expandtabs(4))
        if self._fence is not None:
            return self._code_line(self._fence, indent, line, text)
        if not text:
            self._after_blank, self._in_paragraph = True, False
            return ""
        out = self._placed(indent, text)
        self._after_blank = False
        return out

    def _code_line(self, fence: _Fence, indent: int, line: str, text: str) -> str:
        if fence.is_closed_by(text.rstrip()):
            self._fence = None
            return " " * fence.indent_out + text
        if fence.shift == 0 and indent >= fence.indent_out:
            return line  # with the tabs it has
        return " " * max(indent + fence.shift, fence.indent_out) + text if text else ""

    def _placed(self, indent: int, text: str) -> str:
        item = ITEM.match(" " * indent + text)
        if item and not RULE.match(text) and self._begins_item(item, text):
            self._in_paragraph = False
            return self._item_line(indent, text, item)
        starts_block = bool(BLOCK_START.match(text) or RULE.match(text))
        self._in_paragraph = not starts_block or text.startswith("|")
        if not self._items or not (self._after_blank or starts_block):
            out = indent
        else:
            self._close_items(indent)
            out = self._offset_out(indent)
        out = self._open_fence(indent, out, text)
        return " " * out + text

    def _begins_item(self, item: re.Match[str], text: str) -> bool:
        """Within a paragraph, "2024. A year" and a lone dash are text (CommonMark 0.31, 5.3)."""
        in_plain_paragraph = self._in_paragraph and not self._items
        return not in_plain_paragraph or (item[2] in INTERRUPTING and text.strip() != item[2])

    def _item_line(self, indent: int, text: str, item: re.Match[str]) -> str:
        self._close_items(indent)
        if not self._items and indent > MAX_OFFSET:
            return " " * indent + text
        out = self._items[-1].content_out if self._items else indent
        gap = len(item[3])
        width = len(item[2]) + (gap if 1 <= gap <= MAX_OFFSET + 1 else 1)
        self._items.append(_Item(indent, indent + width, out + width))
        rest = text[len(item[2]) + gap :]
        self._open_fence(indent + width, out + width, rest)
        return " " * out + text

    def _close_items(self, indent: int) -> None:
        while self._items and indent < self._items[-1].marker + MIN_NESTING:
            self._items.pop()

    def _offset_out(self, indent: int) -> int:
        if not self._items:
            return indent
        item = self._items[-1]
        return item.content_out + max(0, indent - item.content)

    def _open_fence(self, indent: int, out: int, text: str) -> int:
        """See whether code begins here; returns the indent at which it does."""
        fence = FENCE.match(text)
        if fence:
            base = self._items[-1].content_out if self._items else 0
            out = out if out - base <= MAX_OFFSET else base
            self._fence = _Fence(fence[1], out - indent, out)
        return out
