"""Reads a message's Markdown into blocks that a document can be written from. No Qt.

Every character that a model wrote is in some block, apart from the marks that became formatting.
"""

import re
from functools import cached_property
from typing import TYPE_CHECKING

from app.chat.markdown_blocks import Paragraph, Parsed, Span, Start, plain_text
from app.chat.markdown_lists import normalise_lists
from app.chat.markdown_rules import MAX_NESTING, chat_dialect
from app.chat.markdown_walk import walk

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# Paragraphs of one line without any mark are themselves. The end of a growing answer is mostly that, and the parser
# would take half of the time that showing it takes.
LINE = r"[^\W\d_](?:[^\W_]|[ ,.;:?!'\"’‘“”–—…()-])*"
PROSE = re.compile(rf"{LINE}(?:\n{{2,}}{LINE})*\n*")
LOST_BELOW = MAX_NESTING - 3  # what is nested deeper would be left out by the parser


class MarkdownReader:
    """Parses sources; keeps nothing of them."""

    @cached_property
    def _dialect(self) -> "MarkdownIt":
        return chat_dialect()

    def read(self, source: str, first_number: int | None = None) -> Parsed:
        """Parse a source. `first_number` is the number of its first item when it begins within a numbered list."""
        if PROSE.fullmatch(source):
            return _prose(source)
        lines = normalise_lists(source.replace("\r\n", "\n").replace("\r", "\n"))
        tokens = self._dialect.parse("\n".join(lines))
        if any(token.level >= LOST_BELOW for token in tokens):
            return Parsed((Paragraph((Span(plain_text(source)),)),), (Start(0, 0),))
        return walk(tokens, lines, first_number)


def _prose(source: str) -> Parsed:
    """Each line that is not empty is a paragraph."""
    lines = [(number, line.rstrip(" ")) for number, line in enumerate(source.split("\n")) if line]
    blocks = tuple(Paragraph((Span(plain_text(line)),)) for _, line in lines)
    return Parsed(blocks, tuple(Start(number, block) for block, (number, _) in enumerate(lines)))
