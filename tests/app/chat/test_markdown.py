"""Reading Markdown: nothing that a model wrote is lost, and growing text ends where whole text does."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.chat.markdown import MarkdownReader
from app.chat.markdown_blocks import LINE_BREAK, Block, Code, Paragraph, Rule, Span, Style, Table, plain_text
from app.chat.markdown_lists import normalise_lists
from app.chat.markdown_stream import MarkdownStream

READER = MarkdownReader()


def read(source: str) -> tuple[Block, ...]:
    return READER.read(source).blocks


def text_of(block: Block) -> str:
    match block:
        case Paragraph(spans):
            return block.marker + " " + "".join(span.text for span in spans)
        case Code(text, language):
            return f"{language}\n{text}"
        case Table(rows):
            return "\n".join("".join(span.text for span in cell) for row in rows for cell in row)
        case Rule():
            return ""


def spans_in(source: str) -> list[Span]:
    return [span for block in read(source) if isinstance(block, Paragraph) for span in block.spans]


def items_in(source: str) -> list[tuple[str, int, str]]:
    return [
        (block.marker, block.depth, "".join(span.text for span in block.spans))
        for block in read(source)
        if isinstance(block, Paragraph)
    ]


def shown(source: str) -> str:
    return "\n".join(text_of(block) for block in read(source))


def streamed(chunks: list[str]) -> list[Block]:
    stream = MarkdownStream(READER)
    blocks: list[Block] = []
    for chunk in chunks:
        change = stream.append(chunk)
        blocks[change.keep :] = change.blocks
    change = stream.finish()
    blocks[change.keep :] = change.blocks
    return blocks


@pytest.mark.parametrize(
    "source",
    [
        "The type List<String> and <img src=x onerror=1> end",
        "a <!-- b",
        "Hi <b>bold</b> <script>alert(1)</script> there",
        "![secret](file:///etc/passwd)",
        "a < b && c > d",
        "from $5 to $10",
        "2*3*4 = 24",
        "__init__ and __main__",
        "[1]: http-less definition",
        "[^1]: a footnote",
        "~~ a wave ~",
    ],
)
def test_is_shown_as_it_stands(source: str) -> None:
    assert source in shown(source)


def test_front_matter_is_text() -> None:
    assert "title: x" in shown("---\ntitle: x\n---\n\nbody")


def test_an_underline_is_a_line_not_a_heading() -> None:
    assert read("text\n---\nmore") == (Paragraph((Span("text"),)), Rule(), Paragraph((Span("more"),)))


def test_formulas_keep_their_source() -> None:
    spans = spans_in(r"so \(x_1 * y_1\) and $$a_b$$")
    assert Span(r"\(x_1 * y_1\)", Style.CODE) in spans
    assert Span("$$a_b$$", Style.CODE) in spans
    assert r"\(unclosed" in shown(r"an \(unclosed one")


def test_links_lead_to_the_web_only() -> None:
    spans = spans_in("[a](http://b.c) [d](/etc/passwd) [e](javascript:x) https://f.g/h.")
    assert [(span.text, span.link) for span in spans if span.link] == [
        ("a", "http://b.c"),
        ("https://f.g/h", "https://f.g/h"),
    ]
    assert "/etc/passwd" in "".join(span.text for span in spans)


def test_a_single_newline_breaks_the_line() -> None:
    assert read("one\ntwo") == (Paragraph((Span(f"one{LINE_BREAK}two"),)),)


def test_sublists_by_two_spaces_stay_sublists() -> None:
    assert items_in("1. a\n  - b\n  - c\n2. d") == [("1.", 1, "a"), ("•", 2, "b"), ("•", 2, "c"), ("2.", 1, "d")]


def test_code_in_an_item_needs_no_exact_indent() -> None:
    for indent in range(7):
        source = f"1. a\n\n{' ' * indent}```py\nx = 1\n{' ' * indent}```\n2. b"
        assert [type(block) for block in read(source)] == [Paragraph, Code, Paragraph], indent
        assert shown(source) == "1. a\npy\nx = 1\n2. b"


def test_code_keeps_its_own_indents() -> None:
    (_, code) = read("- a\n  ```\n  if x:\n      y\n  ```")
    assert code == Code("if x:\n    y", "", 1)


def test_an_open_fence_is_code_already() -> None:
    assert read("a\n```python\nx = 1\n\ny") == (Paragraph((Span("a"),)), Code("x = 1\n\ny", "python"))


def test_tasks_have_boxes() -> None:
    assert items_in("- [ ] a\n- [x] b") == [("☐", 1, "a"), ("☑", 1, "b")]


def test_a_table_keeps_surplus_cells_and_breaks() -> None:
    (table,) = read("| a | b |\n|:--|--:|\n| 1<br>2 | 3 | 4 | 5 |\n| 6 |")
    assert isinstance(table, Table)
    assert table.alignments == ("left", "right")
    assert ["".join(span.text for span in cell) for row in table.rows for cell in row] == [
        "a", "b", f"1{LINE_BREAK}2", "3 | 4 | 5", "6", "",
    ]  # fmt: skip


def test_deep_nesting_is_not_cut_off() -> None:
    deep_quote = "> " * 500 + "word"
    deep_list = "\n".join("  " * depth + f"- item{depth}" for depth in range(300))
    assert "word" in shown(deep_quote)
    assert "item299" in shown(deep_list)


def test_long_runs_get_room_to_break() -> None:
    text = plain_text("x" * 5000)
    assert text.replace("\u200b", "") == "x" * 5000
    assert max(map(len, text.split("\u200b"))) <= 200


def test_structure_characters_of_documents_are_no_structure() -> None:
    assert not set("\u2029\ufdd0\ufdd1\ufffc\0\r") & set(shown("a\u2029b\ufdd0c\ufdd1d\ufffce\0f\rg"))


# What models write: words and marks in any order, mostly on lines of their own.
WORDS = st.sampled_from(["alpha", "beta", "x1", "Lorem ipsum", "5", "42 apples"])
MARKS = st.sampled_from(
    ["**", "*", "`", "_", "~~", "[", "](http://u.v)", "<br>", "|", "\\", "$", "$$", "\\(", "\\)", "!", "<b>", "&lt;"]
)
LINE = st.builds(
    lambda indent, start, parts: indent + start + "".join(parts),
    st.sampled_from(["", "", "", " ", "  ", "   ", "    ", "      ", "\t"]),
    st.sampled_from(["", "", "- ", "* ", "1. ", "2. ", "10) ", "> ", "# ", "### ", "| ", "- [ ] ", "> - ", "- 1. "]),
    st.lists(WORDS | MARKS | st.just(" "), max_size=6),
)
WHOLE = st.sampled_from(["", "", "```", "```py", "~~~", "---", "|---|---|", "===", "| a | b |", "    ```", "***"])
SOURCE = st.lists(LINE | WHOLE, max_size=14).map("\n".join)


@settings(max_examples=120, deadline=None)
@given(SOURCE)
@example("1. a\n1. b\n1. c")
def test_no_word_is_lost(source: str) -> None:
    without_addresses = re.sub(r"\]\(http://u\.v\)|^ *(`{3,}|~{3,}).*$|<br>|&lt;", " ", source, flags=re.MULTILINE)
    words = re.findall(r"[a-z]+\d?|\d+(?![.)\d])", without_addresses)
    text = shown(source)
    for word in set(words):
        assert text.count(word) >= words.count(word), word


@settings(max_examples=120, deadline=None)
@given(SOURCE, st.data())
def test_growing_text_ends_where_whole_text_does(source: str, data: st.DataObject) -> None:
    chunks, rest = [], source
    while rest:
        size = data.draw(st.integers(1, max(1, len(rest))))
        chunks.append(rest[:size])
        rest = rest[size:]
    assert streamed(chunks) == list(read(source))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(SOURCE)
@example("|---|---|\n- \n    - alpha\nalpha\n")
def test_what_is_committed_is_final(source: str) -> None:
    """Without the whole parse at the end: committed blocks are the first blocks of the whole."""
    stream = MarkdownStream(READER)
    blocks: list[Block] = []
    for line in source.split("\n"):
        change = stream.append(line + "\n")
        blocks[change.keep :] = change.blocks
        final = change.keep
    assert blocks[:final] == list(read(source + "\n"))[:final]


@settings(max_examples=120, deadline=None)
@given(SOURCE)
def test_normalising_keeps_lines_and_what_they_say(source: str) -> None:
    lines = normalise_lists(source)
    assert [line.strip() for line in lines] == [line.strip() for line in source.split("\n")]


def test_a_long_answer_leaves_a_short_tail() -> None:
    """Whatever it is made of: the work of a piece must not grow with the answer."""
    kinds = {
        "prose": "A sentence of some length. Another one.\n\n",
        "list": "- an item\n",
        "numbers": "1. an item\n\n   ```py\n   x = 1\n   ```\n",
        "headings": "## Title\nText\n",
    }
    for name, piece in kinds.items():
        stream = MarkdownStream(READER)
        for _ in range(60):
            change = stream.append(piece)
        assert len(change.blocks) < 8, name


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("a\n\n``", "a"),
        ("a\n\n```py", "a"),
        ("a\n\n-", "a"),
        ("a\n\n1.", "a"),
        ("a\n\n##", "a"),
    ],
)
def test_undecided_lines_are_held_back(text: str, visible: str) -> None:
    change = MarkdownStream(READER).append(text)
    assert "\n".join(map(text_of, change.blocks)).strip() == visible


def test_bold_and_code_that_have_not_ended_show_no_marks() -> None:
    change = MarkdownStream(READER).append("so **very im")
    assert change.blocks == (Paragraph((Span("so "), Span("very im", Style.BOLD))),)
    change = MarkdownStream(READER).append("call `pri")
    assert change.blocks == (Paragraph((Span("call "), Span("pri", Style.CODE))),)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abz Zé09,.;:?!'\"’“–—…()-*_`/\\&#$~[]\n", max_size=40))
@example("http://a.b is: no (link)")
@example("a  b -- c ")
@example("One. \n\n\nTwo \n\nThree\n")
def test_prose_needs_no_parser(source: str) -> None:
    """Where the short way is taken, the long one says the same."""
    from app.chat import markdown

    lines = normalise_lists(source)
    parsed = markdown.walk(READER._dialect.parse("\n".join(lines)), lines, None)
    assert READER.read(source) == parsed
