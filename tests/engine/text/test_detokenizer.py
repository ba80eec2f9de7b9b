"""Streams of tokens: whole characters, nothing lost, nothing taken back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
# Every id of the tiny vocabularies, and some beyond.
tiny_ids = st.lists(st.integers(0, 330), max_size=30)
pieces_of_characters = st.lists(st.integers(3, 258), max_size=12)  # ids of the single bytes
texts = st.text() | st.text("삼겹살👩\u200d👩\u200d👧ďábel世界 a")


def stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special)
    return [*(detokenizer.push(number) for number in ids), detokenizer.flush()]


@pytest.fixture(scope="session", params=["byte_tokenizer", "piece_tokenizer"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@given(ids=tiny_ids | pieces_of_characters, skip_special=st.booleans())
def test_a_stream_is_the_whole_in_parts(tokenizer: Tokenizer, ids: list[int], skip_special: bool) -> None:
    parts = stream(tokenizer, ids, skip_special=skip_special)
    assert "".join(parts) == tokenizer.decode(ids, skip_special=skip_special)


@given(text=texts)
def test_text_streams_without_a_broken_character(tokenizer: Tokenizer, text: str) -> None:
    parts = stream(tokenizer, tokenizer.encode(text))
    assert "".join(parts) == text
    assert parts[-1] == ""
    assert sum(part.count(REPLACEMENT) for part in parts) == text.count(REPLACEMENT)


@given(text=texts, data=st.data())
def test_a_cut_inside_a_character_leaves_one_mark_at_most(tokenizer: Tokenizer, text: str, data: st.DataObject) -> None:
    ids = tokenizer.encode(text)
    cut = data.draw(st.integers(0, len(ids)))
    *parts, last = stream(tokenizer, ids[:cut])
    assert last in ("", REPLACEMENT)
    assert text.startswith("".join(parts))


@given(ids=tiny_ids)
def test_byte_level_text_is_the_librarys(byte_tokenizer: Tokenizer, ids: list[int]) -> None:
    for skip_special in (False, True):
        expected = byte_tokenizer._backend.decode(ids, skip_special_tokens=skip_special)
        assert byte_tokenizer.decode(ids, skip_special=skip_special) == expected


@pytest.mark.starter
@settings(max_examples=200)
@given(ids=st.lists(st.integers(0, 49151), max_size=40))
def test_starter_text_is_the_librarys(starter_tokenizer: Tokenizer, ids: list[int]) -> None:
    expected = starter_tokenizer._backend.decode(ids, skip_special_tokens=True)
    assert "".join(stream(starter_tokenizer, ids)) == expected


@given(text=texts)
def test_sentence_piece_text_is_the_librarys(piece_tokenizer: Tokenizer, text: str) -> None:
    ids = piece_tokenizer.encode(text)
    assert piece_tokenizer.decode(ids) == piece_tokenizer._backend.decode(ids)


def test_real_invalid_bytes_are_shown_at_once(byte_tokenizer: Tokenizer) -> None:
    start, letter = byte_tokenizer.encode("é")[0], byte_tokenizer.encode("a")[0]
    detokenizer = Detokenizer(byte_tokenizer)
    assert [detokenizer.push(start), detokenizer.push(letter), detokenizer.flush()] == ["", f"{REPLACEMENT}a", ""]


def test_a_control_token_inside_a_character_does_not_break_it(byte_tokenizer: Tokenizer) -> None:
    first, second = byte_tokenizer.encode("é")
    assert stream(byte_tokenizer, [first, 1, second]) == ["", "", "é", ""]


def test_only_the_first_space_is_dropped(piece_tokenizer: Tokenizer) -> None:
    ids = piece_tokenizer.encode("  the dog")
    assert "".join(stream(piece_tokenizer, ids)) == "  the dog"
    assert "".join(stream(piece_tokenizer, [2, *piece_tokenizer.encode("dog the")])) == "dog the"
