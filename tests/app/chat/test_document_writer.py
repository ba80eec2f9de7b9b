"""The writer against itself: a document that grew must equal one that was written at once."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from PySide6.QtGui import QFont, QTextBlock, QTextDocument
from pytestqt.qtbot import QtBot

from app.chat.document_writer import DocumentWriter, utf16_length
from app.chat.markdown import MarkdownReader
from app.chat.markdown_blocks import Block, Code
from app.chat.markdown_stream import Change, MarkdownStream
from app.theme import DARK, LIGHT
from tests.app.chat.test_markdown import SOURCE

READER = MarkdownReader()
SAMPLE = """# Title

Some **bold** 😀 and `code` with [a link](http://u.v).

1. one
   - sub 👩‍👩‍👧
2. two

```python
def f(x):  # 😀 astral
    return "text"
```

| a | b |
|---|--:|
| 1 | 2 |
| three **bold** | 4 |
| 5 | |

> quoted

---
The end
"""


def new_writer() -> tuple[QTextDocument, DocumentWriter]:
    document = QTextDocument()
    document.setUndoRedoEnabled(False)
    return document, DocumentWriter(document, QFont("DejaVu Sans", 10), LIGHT)


def look(document: QTextDocument) -> list[object]:
    """Everything that can be seen: texts, places, spaces, and the look of each stretch."""
    seen: list[object] = []
    block = document.begin()
    while block.isValid():
        form = block.blockFormat()
        rect = document.documentLayout().blockBoundingRect(block)
        seen.append((block.text(), form.leftMargin(), form.topMargin(), form.textIndent(), rect.getRect()))
        seen.extend(stretches(block))
        block = block.next()
    return seen


def stretches(block: QTextBlock) -> list[object]:
    result: list[list[object]] = []
    iterator = block.begin()
    while not iterator.atEnd():
        fragment = iterator.fragment()
        form = fragment.charFormat()
        look = (form.fontWeight(), form.fontItalic(), form.foreground().color().name(), form.anchorHref(),
                form.fontFamilies(), form.fontPointSize(), form.background().color().name())  # fmt: skip
        if result and result[-1][1] == look:
            result[-1][0] = f"{result[-1][0]}{fragment.text()}"
        else:
            result.append([fragment.text(), look])
        iterator += 1  # type: ignore[operator, assignment]
    return list(result)


def finish(writer: DocumentWriter) -> None:
    for _ in writer.colour_code(len(writer.entries)):
        pass


def written_at_once(source: str) -> list[object]:
    document, writer = new_writer()
    writer.apply(Change(0, READER.read(source).blocks))
    finish(writer)
    return look(document)


def grown(chunks: list[str]) -> list[object]:
    document, writer = new_writer()
    stream = MarkdownStream(READER)
    for chunk in chunks:
        writer.apply(stream.append(chunk))
    writer.apply(stream.finish())
    finish(writer)
    return look(document)


@settings(max_examples=60, deadline=None)
@given(SOURCE | st.just(SAMPLE), st.data())
def test_a_document_that_grew_equals_one_written_at_once(qapp: object, source: str, data: st.DataObject) -> None:
    chunks, rest = [], source
    while rest:
        size = data.draw(st.integers(1, max(1, len(rest) // 2)))
        chunks.append(rest[:size])
        rest = rest[size:]
    assert grown(chunks) == written_at_once(source)


def test_character_by_character(qapp: object) -> None:
    assert grown(list(SAMPLE)) == written_at_once(SAMPLE)


BLOCKS = SOURCE.map(lambda source: READER.read(source).blocks)


@settings(max_examples=60, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=4))
@example([READER.read("| a | b |\n|--|--|\n|1|2|").blocks, READER.read("```\n```").blocks, ()])
def test_any_change_leads_to_the_same_document(qapp: object, states: list[tuple[Block, ...]]) -> None:
    document, writer = new_writer()
    for blocks in states:
        writer.apply(Change(0, blocks))
    finish(writer)
    fresh_document, fresh = new_writer()
    fresh.apply(Change(0, states[-1]))
    finish(fresh)
    assert look(document) == look(fresh_document)
    assert writer.blocks == states[-1]


def test_what_did_not_change_is_not_touched(qtbot: QtBot) -> None:
    document, writer = new_writer()
    document.documentLayout()  # without one nothing is signalled
    stream = MarkdownStream(READER)
    writer.apply(stream.append(SAMPLE + "\n\nand the tail"))
    edits: list[tuple[int, int, int]] = []
    document.contentsChange.connect(lambda at, removed, added: edits.append((at, removed, added)))
    before = document.characterCount()
    writer.apply(stream.append(" grows"))
    assert edits == [(before - 1, 0, len(" grows"))]


def test_other_colours_write_the_same_text(qapp: object) -> None:
    document, writer = new_writer()
    writer.apply(Change(0, READER.read(SAMPLE).blocks))
    text = document.toPlainText()
    writer.set_colours(DARK)
    assert document.toPlainText() == text
    assert DARK.text in str(look(document))
    assert LIGHT.text not in str(look(document))


def test_long_code_is_coloured_as_a_whole_in_the_end(qapp: object) -> None:
    """A string over many lines has one colour, whether the code came at once or line by line."""
    lines = ['x = """', *(f"for line {number} in text" for number in range(60)), '"""']
    source = "```python\n" + "\n".join(lines) + "\n```\n"
    assert grown([line + "\n" for line in source.split("\n")]) == written_at_once(source)


def test_colouring_stops_when_the_document_changes(qapp: object) -> None:
    document, writer = new_writer()
    code = Code("\n".join(f"x{number} = {number}" for number in range(100)), "python")
    writer.apply(Change(0, (code,)))
    colouring = writer.colour_code(len(writer.entries))
    next(colouring)
    writer.apply(Change(0, ()))
    assert list(colouring) == []
    assert document.toPlainText() == ""


def test_lengths_are_those_of_qt(qapp: object) -> None:
    text = "a😀b👩‍👩‍👧"
    document = QTextDocument(text)
    assert utf16_length(text) == document.characterCount() - 1
