"""Markdown that grows: what is complete is parsed once, only the growing tail again and again. No Qt.

A block is complete when a later one has begun on a whole line; then nothing that follows can change it. Items of a
top-level list count as blocks, and lines of open code are taken as they are, so that an answer which is one long list
or one long program costs no more than any other.
"""

import re
from dataclasses import dataclass, replace

from app.chat.markdown import MarkdownReader
from app.chat.markdown_blocks import Block, Code, Paragraph, Parsed, Span, Spans, Start, Style, plain_text

# A last line that may still become something else: a fence, a marker, a row, a heading.
UNDECIDED = re.compile(r"[ \t]*(`{1,2}|`{3,}[^`]*|~+[^~]*|[-+*>|#=_ ]+|\d{1,9}[.)]?|<[^>]*)$")
OPEN_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`\n]*\n)|~{3,})[^\n]*\n")
OPENERS = (("**", Style.BOLD), ("`", Style.CODE))


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the blocks: the first `keep` stay, all others are replaced by `blocks`."""

    keep: int
    blocks: tuple[Block, ...]


class _OpenCode:
    """Top-level code whose end has not come yet."""

    def __init__(self, opening: re.Match[str], block: Code) -> None:
        self.block = block
        self._indent = len(opening[1])
        self._fence = opening[2]
        self._lines: str | None = None

    def take(self, tail: str) -> tuple[str, bool]:
        """Take whole lines from the tail. Returns what is left of it, and whether the code has ended."""
        while "\n" in tail:
            line, _, tail = tail.partition("\n")
            if self._closes(line):
                self._show(None)
                return tail, True
            line = self._cleaned(line)
            self._lines = line if self._lines is None else f"{self._lines}\n{line}"
        is_fence = tail.strip() and not tail.strip().strip(self._fence[0])
        self._show(None if is_fence or not tail else self._cleaned(tail))
        return tail, False

    def _show(self, partial: str | None) -> None:
        parts = (part for part in (self._lines, partial) if part is not None)
        self.block = replace(self.block, text="\n".join(parts))

    def _closes(self, line: str) -> bool:
        text = line.strip()
        return len(text) >= len(self._fence) and not text.strip(self._fence[0])

    def _cleaned(self, line: str) -> str:
        spaces = len(line) - len(line.lstrip(" "))
        return plain_text(line[min(spaces, self._indent) :])


class MarkdownStream:
    """One growing message.

    Attributes:
        source: all text so far, as it came.
    """

    def __init__(self, reader: MarkdownReader) -> None:
        self.source = ""
        self._reader = reader
        self._tail = ""
        self._committed: list[Block] = []
        self._code: _OpenCode | None = None
        self._first_number: int | None = None

    def append(self, text: str) -> Change:
        """Take more text; says how the picture changes meanwhile."""
        self.source += text
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._tail += text
        keep = len(self._committed)
        if "\n" in text or self._code is not None:
            self._complete()  # only whole lines complete anything
        if self._code is not None:
            return Change(keep, (*self._committed[keep:], self._code.block))
        shown = self._reader.read(_decided(self._tail), self._first_number).blocks
        return Change(keep, (*self._committed[keep:], *_with_closed_marks(shown)))

    def take(self, text: str) -> None:
        """Take more text without a look at it; `finish` shows it."""
        self.source += text

    def finish(self) -> Change:
        """No more comes: everything is parsed once as a whole, which is what a later look at the message shows."""
        blocks = self._reader.read(self.source).blocks
        keep = 0
        for ours, final in zip(self._committed, blocks, strict=False):
            if ours != final:
                break
            keep += 1
        self._committed, self._tail, self._code = list(blocks), "", None
        return Change(keep, blocks[keep:])

    def _complete(self) -> None:
        """Move everything that is complete out of the tail."""
        while True:
            if self._code is None:
                self._commit()
                self._code = self._opened_code()
            if self._code is None:
                return
            self._tail, ended = self._code.take(self._tail)
            if not ended:
                return
            self._committed.append(self._code.block)
            self._code = None

    def _commit(self) -> None:
        end = self._tail.rfind("\n") + 1
        parsed = self._reader.read(self._tail[:end], self._first_number)
        start = _last_start(parsed)
        if start is not None:
            self._committed += parsed.blocks[: start.block]
            self._tail = self._tail.split("\n", start.line)[start.line]
            self._first_number = start.number

    def _opened_code(self) -> _OpenCode | None:
        """The code that the tail begins with, if it does; its first line leaves the tail."""
        opening = OPEN_FENCE.match(self._tail)
        if opening is None:
            return None
        (block,) = self._reader.read(opening[0]).blocks
        assert isinstance(block, Code)
        self._tail = self._tail[opening.end() :]
        self._first_number = None
        return _OpenCode(opening, block)


def _last_start(parsed: Parsed) -> Start | None:
    return next((start for start in reversed(parsed.starts) if start.line > 0), None)


def _decided(tail: str) -> str:
    """The tail without a last line that would flicker."""
    head, newline, last = tail.rpartition("\n")
    return head if newline and UNDECIDED.fullmatch(last) else tail


def _with_closed_marks(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Show bold and code whose end has not come yet as such, not as stars."""
    if not blocks or not isinstance(blocks[-1], Paragraph):
        return blocks
    last = blocks[-1]
    return (*blocks[:-1], replace(last, spans=_closed(last.spans)))


def _closed(spans: Spans) -> Spans:
    for index in range(len(spans) - 1, -1, -1):
        for opener, style in OPENERS:
            before, found, after = spans[index].text.rpartition(opener)
            if found and spans[index].style is Style.PLAIN and not after.startswith((" ", opener[0])):
                opened = (Span(after, style), *(replace(s, style=s.style | style) for s in spans[index + 1 :]))
                head = (replace(spans[index], text=before),) if before else ()
                return (*spans[:index], *head, *(span for span in opened if span.text))
    return spans
