"""The Markdown dialect of the chat: CommonMark without what eats a model's text. No Qt.

HTML, images, link definitions, front matter and underlined headings are off, so that `List<String>`, `![](file:///…)`
and `[1]: …` stay visible as text. Formulas keep their source, and stars between letters or digits multiply.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the parser takes a while to import, and the window is up before it is needed
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline

MAX_NESTING = 200
MAX_INLINE_CHARS = 8_000
MAX_BRACKETS = 300  # unmatched ones cost quadratic time
FORMULA_CLOSERS = {r"\(": r"\)", r"\[": r"\]", "$$": "$$"}
DUNDER = re.compile(r"__[a-z0-9]+(?:_[a-z0-9]+)*__(?![A-Za-z0-9_])")


def chat_dialect() -> "MarkdownIt":
    """A parser of this dialect."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    parser.disable(["reference", "lheading", "html_block", "html_inline", "image"])
    parser.core.ruler.at("inline", _bounded_inline)
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.inline.ruler.before("emphasis", "literal_markers", _literal_markers)
    return parser


def _bounded_inline(state: "StateCore") -> None:
    """Read the marks within paragraphs; one that is far too long is shown as it stands."""
    from markdown_it.token import Token

    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if len(token.content) <= MAX_INLINE_CHARS and token.content.count("[") <= MAX_BRACKETS:
            state.md.inline.parse(token.content, state.md, state.env, token.children)
        else:
            token.children.append(Token("text", "", 0, content=token.content))


def _formula(state: "StateInline", silent: bool) -> bool:
    r"""`\(…\)`, `\[…\]` and `$$…$$`, kept as they are written. A single dollar is money."""
    opener = state.src[state.pos : state.pos + 2]
    closer = FORMULA_CLOSERS.get(opener)
    if closer is None:
        return False
    end = state.src.find(closer, state.pos + 2, state.posMax)
    if end < 0:
        return _unclosed_formula(state, opener, silent=silent)
    if not silent:
        token = state.push("formula", "", 0)
        token.content = state.src[state.pos : end + 2]
    state.pos = end + 2
    return True


def _unclosed_formula(state: "StateInline", opener: str, *, silent: bool) -> bool:
    """Keep the backslash of a formula that never ends; `$$` is plain text anyway."""
    if opener == "$$":
        return False
    if not silent:
        state.pending += opener
    state.pos += 2
    return True


def _literal_markers(state: "StateInline", silent: bool) -> bool:
    """`2*3*4` multiplies, and `__init__` is a name: both would lose characters as emphasis."""
    text, start = state.src, state.pos
    if text[start] == "*" and _is_between_words(text, start):
        end = start + 1
    elif dunder := DUNDER.match(text, start):
        end = dunder.end()
    else:
        return False
    if not silent:
        state.pending += text[start:end]
    state.pos = end
    return True


def _is_between_words(text: str, position: int) -> bool:
    before, after = text[position - 1 : position], text[position + 1 : position + 2]
    return before.isalnum() and after.isalnum()
