"""Stop strings against a filter that looks at the whole text again for every character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.stop_strings import StopStringFilter

short = st.text("ab", max_size=12)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def cut_at_stop(text: str, stops: list[str]) -> str | None:
    """The text before the stop string that is complete first; None when there is none."""
    for end in range(1, len(text) + 1):
        begun = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begun:
            return text[: min(begun)]
    return None


def sure_part(text: str, stops: list[str]) -> str:
    """The longest beginning that no stop string can still take back."""
    for at in range(len(text)):
        if any(stop != text[at:] and stop.startswith(text[at:]) for stop in stops):
            return text[:at]
    return text


@given(pieces=st.lists(short, max_size=6), stops=stop_lists)
def test_filter_equals_brute_force(pieces: list[str], stops: list[str]) -> None:
    stop_filter = StopStringFilter(stops)
    shown = seen = ""
    for piece in pieces:
        new, stopped = stop_filter.push(piece)
        shown, seen = shown + new, seen + piece
        expected = cut_at_stop(seen, stops)
        assert stopped == (expected is not None)
        assert shown == (sure_part(seen, stops) if expected is None else expected)
    shown += stop_filter.flush()
    expected = cut_at_stop(seen, stops)
    assert shown == (seen if expected is None else expected)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["Hello E", "ND x"], ["Hello ", ""]),
        (["The END of", " it"], ["The ", ""]),
        (["E", "N", "D"], ["", "", ""]),
        (["E", "N", "T"], ["", "", "ENT"]),
        (["EEN", "D!"], ["E", ""]),
    ],
)
def test_a_stop_inside_and_across_pieces(pieces: list[str], expected: list[str]) -> None:
    stop_filter = StopStringFilter(["END"])
    assert [stop_filter.push(piece).text for piece in pieces] == expected


def test_what_never_became_a_stop_is_shown_at_the_end() -> None:
    stop_filter = StopStringFilter(["</answer>"])
    assert stop_filter.push("x </ans") == ("x ", False)
    assert stop_filter.flush() == "</ans"
    assert stop_filter.flush() == ""


def test_nothing_is_shown_after_a_stop() -> None:
    stop_filter = StopStringFilter(["."])
    assert stop_filter.push("One. Two") == ("One", True)
    assert stop_filter.push("more") == ("", True)
    assert stop_filter.flush() == ""


def test_without_stops_all_passes() -> None:
    assert StopStringFilter([]).push("any text") == ("any text", False)
