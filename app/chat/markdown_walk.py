"""From the parser's tokens to blocks. No Qt."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.chat.markdown_blocks import LINE_BREAK, Block, Code, Paragraph, Parsed, Rule, Span, Spans, Start, Style, Table
from app.chat.markdown_blocks import plain_text as plain

if TYPE_CHECKING:
    from markdown_it.token import Token

BULLETS = ("•", "◦", "▪")
TASKS = {"[ ] ": "☐", "[x] ": "☑", "[X] ": "☑"}
BR = re.compile(r"<br ?/?>", re.IGNORECASE)
URL = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]}*_]")
BAR = re.compile(r"(?<!\\)\|")
STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


def walk(tokens: "Sequence[Token]", lines: Sequence[str], first_number: int | None) -> Parsed:
    """The blocks of a source that was parsed, and the places where reading can begin anew."""
    walker = _Walker(tokens, lines, first_number)
    walker.run()
    return Parsed(tuple(walker.blocks), tuple(walker.starts))


class _Walker:
    """Goes through the tokens once.

    Attributes:
        _numbers: for each open list the number of its next item; None for bullets.
        _marker: the marker of an item that has no paragraph yet.
    """

    def __init__(self, tokens: "Sequence[Token]", lines: Sequence[str], first_number: int | None) -> None:
        self.blocks: list[Block] = []
        self.starts: list[Start] = []
        self._tokens = iter(tokens)
        self._lines = lines
        self._first_number = first_number
        self._numbers: list[int | None] = []
        self._quotes = 0
        self._marker = ""

    def run(self) -> None:
        for token in self._tokens:
            if token.level == 0 and token.map and token.nesting >= 0:
                self._begin_top(token)
            handler = _HANDLERS.get(token.type)
            if handler is not None:
                handler(self, token)

    def _begin_top(self, token: "Token") -> None:
        # Lists begin anew with each item.
        if token.type not in ("bullet_list_open", "ordered_list_open") and token.map:
            self.starts.append(Start(token.map[0], len(self.blocks)))

    def open_list(self, token: "Token") -> None:
        self._place_marker()
        number = None
        if token.type == "ordered_list_open":
            number = int(token.attrs.get("start", 1))
            if token.level == 0 and not self.blocks and self._first_number is not None:
                number = self._first_number
        self._numbers.append(number)

    def close_list(self, _token: "Token") -> None:
        self._numbers.pop()

    def open_item(self, token: "Token") -> None:
        number = self._numbers[-1]
        if len(self._numbers) == 1 and not self._quotes and token.map:
            self.starts.append(Start(token.map[0], len(self.blocks), number))
        if number is None:
            self._marker = BULLETS[min(self._numbers.count(None), len(BULLETS)) - 1]
        else:
            self._marker = f"{number}."
            self._numbers[-1] = number + 1

    def close_item(self, _token: "Token") -> None:
        self._place_marker()

    def open_quote(self, _token: "Token") -> None:
        self._place_marker()
        self._quotes += 1

    def close_quote(self, _token: "Token") -> None:
        self._quotes -= 1

    def paragraph(self, token: "Token") -> None:
        inline = next(self._tokens)
        heading = int(token.tag[1]) if token.type == "heading_open" else 0
        children, marker = inline.children or [], self._marker
        if marker and children and children[0].content[:4] in TASKS:
            marker = TASKS[children[0].content[:4]]
            children[0].content = children[0].content[4:]
        self._add_paragraph(spans_of(children), heading=heading, marker=marker)

    def code(self, token: "Token") -> None:
        self._place_marker()
        text = "\n".join(plain(line) for line in token.content.removesuffix("\n").split("\n"))
        self.blocks.append(Code(text, token.info.strip(), len(self._numbers), self._quotes))

    def rule(self, _token: "Token") -> None:
        self._place_marker()
        self.blocks.append(Rule())

    def table(self, token: "Token") -> None:
        self._place_marker()
        rows: list[tuple[Spans, ...]] = []
        alignments: list[str] = []
        cells: list[Spans] = []
        for inner in self._tokens:
            if inner.type == "table_close":
                break
            if inner.type == "inline":
                cells.append(tuple(_with_breaks(spans_of(inner.children or []))))
            elif inner.type == "th_open":
                alignments.append(str(inner.attrGet("style") or "").removeprefix("text-align:"))
            elif inner.type == "tr_open" and inner.map:
                cells, line = [], self._lines[inner.map[0]]
            elif inner.type == "tr_close":
                rows.append(_with_surplus(cells, line))
        self.blocks.append(Table(tuple(rows), tuple(alignments)))

    def _place_marker(self) -> None:
        """An item that does not begin with a paragraph gets an empty one for its marker."""
        if self._marker:
            self._add_paragraph((), marker=self._marker)

    def _add_paragraph(self, spans: Spans, *, marker: str, heading: int = 0) -> None:
        self._marker = ""
        self.blocks.append(Paragraph(spans, heading, marker, len(self._numbers), self._quotes))


_HANDLERS: dict[str, "Callable[[_Walker, Token], None]"] = {
    "bullet_list_open": _Walker.open_list,
    "ordered_list_open": _Walker.open_list,
    "bullet_list_close": _Walker.close_list,
    "ordered_list_close": _Walker.close_list,
    "list_item_open": _Walker.open_item,
    "list_item_close": _Walker.close_item,
    "blockquote_open": _Walker.open_quote,
    "blockquote_close": _Walker.close_quote,
    "paragraph_open": _Walker.paragraph,
    "heading_open": _Walker.paragraph,
    "fence": _Walker.code,
    "code_block": _Walker.code,
    "hr": _Walker.rule,
    "table_open": _Walker.table,
}


def _with_surplus(cells: Sequence[Spans], line: str) -> tuple[Spans, ...]:
    """The cells of a row; what stands beyond the heading's columns is put into the last one, not dropped."""
    written = BAR.split(line.strip(" \t>").removeprefix("|").removesuffix("|"))
    surplus = [cell.strip() for cell in written[len(cells) :]]
    if not cells or not any(surplus):
        return tuple(cells)
    return (*cells[:-1], (*cells[-1], Span(plain(" | ".join(["", *surplus])))))


def _with_breaks(spans: Spans) -> Iterator[Span]:
    """Within a table's cell, `<br>` is the only way to break a line."""
    for span in spans:
        yield span if Style.CODE in span.style else replace(span, text=BR.sub(LINE_BREAK, span.text))


def spans_of(tokens: "Sequence[Token]") -> Spans:
    """The text of a paragraph; neighbours that look the same are one span."""
    spans: list[Span] = []
    for span in _spans(tokens):
        if spans and (spans[-1].style, spans[-1].link) == (span.style, span.link):
            spans[-1] = replace(spans[-1], text=spans[-1].text + span.text)
        elif span.text:
            spans.append(span)
    return tuple(linked for span in spans for linked in _find_links(span))


def _spans(tokens: "Sequence[Token]") -> Iterator[Span]:
    style, address = Style.PLAIN, ""
    for token in tokens:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind in STYLES:
            style = style | STYLES[kind] if token.nesting > 0 else style & ~STYLES[kind]
        elif token.type == "link_open":
            address = str(token.attrGet("href") or "")
        elif token.type == "link_close":
            # An address that is not opened is shown, so that nothing is hidden behind a word.
            if address and not _is_web(address):
                yield Span(plain(f" ({address})"), style)
            address = ""
        elif token.type in ("softbreak", "hardbreak"):
            yield Span(LINE_BREAK, style)
        else:
            code = Style.CODE if token.type in ("code_inline", "formula") else Style.PLAIN
            yield Span(plain(token.content), style | code, address if _is_web(address) else "")


def _is_web(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _find_links(span: Span) -> Iterator[Span]:
    """Make addresses in plain text clickable."""
    if span.link or Style.CODE in span.style or "://" not in span.text:
        yield span
        return
    done = 0
    for found in URL.finditer(span.text):
        if found.start() > done:
            yield replace(span, text=span.text[done : found.start()])
        yield replace(span, text=found[0], link=found[0].replace("\u200b", ""))
        done = found.end()
    if done < len(span.text):
        yield replace(span, text=span.text[done:])
