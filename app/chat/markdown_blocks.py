"""What a message looks like: values between the reader of Markdown and the writer of documents. No Qt.

Two blocks are equal when they look equal, so whoever draws them can keep what has not changed.
"""

import re
from dataclasses import dataclass
from enum import Flag

LINE_BREAK = "\u2028"
BREAK_OPPORTUNITY = "\u200b"
MAX_RUN_CHARS = 200  # a line of 100,000 characters without a space takes the layout half a second
LONG_RUN = re.compile(rf"[^\s\u200b]{{{MAX_RUN_CHARS}}}(?=[^\s\u200b])")
# Characters that Qt's documents take for structure.
STRUCTURE = {ord(char): LINE_BREAK for char in "\u2029\v\f\r\n"} | {
    ord(char): "\ufffd" for char in "\0\ufdd0\ufdd1\ufffc"
}


class Style(Flag):
    """How a span of text looks."""

    PLAIN = 0
    BOLD = 1
    ITALIC = 2
    STRIKE = 4
    CODE = 8


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one look. `link` is an http or https address, or empty."""

    text: str
    style: Style = Style.PLAIN
    link: str = ""


Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, a heading (`heading` 1 to 6) or the first paragraph of a list item (with its `marker`).

    `depth` counts the lists around it, `quotes` the quotations.
    """

    spans: Spans
    heading: int = 0
    marker: str = ""
    depth: int = 0
    quotes: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code. `text` does not end in a newline."""

    text: str
    language: str = ""
    depth: int = 0
    quotes: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, the heading row first. `alignments` has "left", "center", "right" or "" for each column."""

    rows: tuple[tuple[Spans, ...], ...]
    alignments: tuple[str, ...]


Block = Paragraph | Code | Rule | Table


@dataclass(frozen=True, slots=True)
class Start:
    """A place where reading can begin anew: a top-level block, or an item of a top-level list.

    Attributes:
        line: its line in the source, from 0.
        block: index of its first block.
        number: what the item is numbered, None for what is not numbered.
    """

    line: int
    block: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """Blocks of a source and the places where reading can begin anew."""

    blocks: tuple[Block, ...]
    starts: tuple[Start, ...]


def plain_text(text: str) -> str:
    """Text that a document shows as it stands: no structure characters, and room to break long runs."""
    return LONG_RUN.sub(rf"\g<0>{BREAK_OPPORTUNITY}", text.translate(STRUCTURE))
