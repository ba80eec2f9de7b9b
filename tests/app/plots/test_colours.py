import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plots.colours import IN_USE_COLOUR, SEQUENCE_COLOURS, ColourBook, mix
from app.theme import OWN_COLOUR


@given(frames=st.lists(st.lists(st.integers(0, 30), max_size=8, unique=True), max_size=40))
def test_a_colour_never_changes(frames: list[list[int]]) -> None:
    book: ColourBook[int] = ColourBook(("a", "b", "c", "d"))
    first: dict[int, int] = {}
    for keys in frames:
        for key, slot in zip(keys, book.slots(keys), strict=True):
            assert first.setdefault(key, slot) == slot


@given(frames=st.lists(st.lists(st.integers(0, 30), max_size=4, unique=True), max_size=40))
def test_newcomers_differ_from_each_other_and_from_what_is_shown(frames: list[list[int]]) -> None:
    book: ColourBook[int] = ColourBook(("a", "b", "c", "d", "e", "f", "g", "h"))
    known: set[int] = set()
    for keys in frames:
        slots = dict(zip(keys, book.slots(keys), strict=True))
        new = [key for key in keys if key not in known]
        for key in new:
            assert all(slots[other] != slots[key] for other in keys if other != key)
        known |= set(keys)


def test_thousands_of_keys_are_forgotten_in_the_end() -> None:
    book: ColourBook[int] = ColourBook(("a", "b"))
    for key in range(10_000):
        book.slots([key])
    assert len(book._slots) <= 512


def test_sequences_never_look_like_something_else() -> None:
    assert len(set(SEQUENCE_COLOURS)) == len(SEQUENCE_COLOURS) >= 16
    assert not {OWN_COLOUR, IN_USE_COLOUR, "#bbbbbb"} & set(SEQUENCE_COLOURS)


@pytest.mark.parametrize(("share", "result"), [(0.0, "#102030"), (1.0, "#ffffff"), (0.5, "#889098")])
def test_mix(share: float, result: str) -> None:
    assert mix("#102030", "#ffffff", share) == result
