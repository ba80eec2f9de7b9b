"""Which colour a process or a sequence has, for as long as it is remembered."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from app.theme import DATA_COLOURS

K = TypeVar("K", bound=Hashable)

IN_USE_COLOUR = DATA_COLOURS[6]  # blocks in use, sequences running: never one owner's

_REMEMBERED = 512


class ColourBook(Generic[K]):
    """Gives each key a colour of its own and keeps it.

    When there are more keys than colours, a newcomer takes the colour that was seen longest ago. Whoever had it keeps
    it too: a colour never changes under the reader's eyes, and names stand beside it.
    """

    def __init__(self, colours: tuple[str, ...]) -> None:
        self.colours = colours
        self._slots: dict[K, int] = {}
        self._seen_at = [0] * len(colours)
        self._clock = 0

    def slots(self, keys: Iterable[K]) -> list[int]:
        """The colour numbers of what is shown now, from 0 on."""
        self._clock += 1
        known = list(keys)
        for key in known:
            if key in self._slots:
                self._slots[key] = self._slots.pop(key)  # the most recently seen stand last
                self._seen_at[self._slots[key]] = self._clock
        return [self._slot(key) for key in known]

    def colour(self, key: K) -> str:
        """The colour of one key as #rrggbb."""
        return self.colours[self.slots((key,))[0]]

    def _slot(self, key: K) -> int:
        if key not in self._slots:
            slot = min(range(len(self.colours)), key=self._seen_at.__getitem__)
            self._slots[key] = slot
            self._seen_at[slot] = self._clock
            if len(self._slots) > _REMEMBERED:
                del self._slots[next(iter(self._slots))]
        return self._slots[key]


def mix(colour: str, other: str, share: float) -> str:
    """`colour` with `share` (0 to 1) of `other` in it, both #rrggbb."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(own * (1 - share) + its * share):02x}" for own, its in pairs)


def with_shades(colours: tuple[str, ...]) -> tuple[str, ...]:
    """The colours, then a lighter and a darker round of them, for more keys than there are hues."""
    lighter = tuple(mix(colour, "#ffffff", 0.45) for colour in colours)
    darker = tuple(mix(colour, "#000000", 0.4) for colour in colours)
    return colours + lighter + darker


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


SEQUENCE_COLOURS = with_shades(tuple(colour for colour in DATA_COLOURS[:-1] if colour != IN_USE_COLOUR))
"""For a `ColourBook` of requests: the last of the data colours is too near to "cached"."""
