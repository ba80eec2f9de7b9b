"""Colours for code. No Qt: it gives places in a text and looks, whoever draws the text applies them.

Colours come from the theme's pygments style, moved towards the text colour where they would be too faint to read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pygments is imported with the first code, not before the window is up
    from pygments.lexer import Lexer
    from pygments.style import StyleMeta
    from pygments.token import _TokenType

MIN_CONTRAST = 4.5  # WCAG 2.2, 1.4.3


@dataclass(frozen=True, slots=True)
class Look:
    """How a token looks: #rrggbb, weight and slant."""

    colour: str
    bold: bool = False
    italic: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of code with one look."""

    start: int
    length: int
    look: Look


def language_of(info: str) -> str:
    """The language in the words after a fence: "python title=x" and "{.python}" both mean python."""
    word = info.split(maxsplit=1)[0] if info.split() else ""
    return word.strip("{}.").split(":")[0].split(",")[0]


class Highlighter:
    """Highlights code in one style.

    Args:
        style: a pygments style's name.
        text: colour of plain code, #rrggbb.
        background: colour behind the code, #rrggbb.
    """

    def __init__(self, style: str, *, text: str, background: str) -> None:
        self._style_name = style
        self._text = text
        self._background = background
        self._looks: dict[_TokenType, Look] = {}

    @cached_property
    def _style(self) -> "StyleMeta":
        from pygments.styles import get_style_by_name

        return get_style_by_name(self._style_name)

    def runs(self, code: str, language: str) -> Iterator[Run]:
        """The stretches of `code` that differ from plain text, in order; nothing for an unknown language."""
        lexer = _lexer(language)
        if lexer is None:
            return
        from pygments.token import Token

        plain = self._look(Token.Text)
        for start, kind, value in lexer.get_tokens_unprocessed(code):
            look = self._look(kind)
            if look != plain and not value.isspace():
                yield Run(start, len(value), look)

    def _look(self, kind: "_TokenType") -> Look:
        if kind not in self._looks:
            style = self._style.style_for_token(kind)
            colour = f"#{style['color']}" if style["color"] else self._text
            self._looks[kind] = Look(self._readable(colour), bool(style["bold"]), bool(style["italic"]))
        return self._looks[kind]

    def _readable(self, colour: str) -> str:
        steps = (mix(colour, self._text, step / 10) for step in range(11))
        return next((step for step in steps if contrast(step, self._background) >= MIN_CONTRAST), self._text)


def _lexer(language: str) -> "Lexer | None":
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        # Whatever pygments does to the text by default would move the places.
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def mix(colour: str, other: str, share: float) -> str:
    """A colour on the way from one to another: 0 is `colour`, 1 is `other`."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def contrast(colour: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
