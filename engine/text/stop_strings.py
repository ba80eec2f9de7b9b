"""Ends a text at the first of several strings, and never shows a part of one. Knows no tokens."""

from collections.abc import Iterable
from typing import NamedTuple


class Filtered(NamedTuple):
    """What may be shown, and whether a stop string has ended the text."""

    text: str
    stopped: bool


class StopStringFilter:
    """Holds back the longest end of the text that could still become a stop string.

    The stop that is complete first ends the text (of several complete at once, the longest), so the outcome does not
    depend on how the text is cut into pieces. After a stop everything is swallowed.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> Filtered:
        """Take new text and give what is now sure to be no part of a stop string."""
        if self._stopped:
            return Filtered("", stopped=True)
        pending = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            self._held, self._stopped = "", True
            return Filtered(pending[: min(found)[1]], stopped=True)
        keep = self._possible_stop(pending)
        self._held = pending[len(pending) - keep :]
        return Filtered(pending[: len(pending) - keep], stopped=False)

    def flush(self) -> str:
        """The text ends here: what was held back has not become a stop string."""
        held, self._held = self._held, ""
        return held

    def _possible_stop(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins some stop string."""
        return max((_overlap(text, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
