"""Numbers over time, as the plots draw them: rings of samples, and memory stacked by process.

Owns arrays and nothing else: no Qt, no colours, no pixels. Times are seconds of a monotonic clock.
"""

from collections.abc import Collection, Hashable, Iterable, KeysView, Mapping
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
K = TypeVar("K", bound=Hashable)


class Ring:
    """The last `capacity` columns of `rows` numbers each; row 0 is the time (or another rising number).

    Every column is written twice, `capacity` apart, so any window is one contiguous slice and nothing is ever moved.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self._data = np.zeros((rows, 2 * capacity))
        self._capacity = capacity
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    @property
    def rows(self) -> int:
        """How many numbers a column has."""
        return len(self._data)

    def append(self, column: Floats | Iterable[float]) -> None:
        """Add one column; the oldest leaves when the ring is full."""
        self._count += 1
        self.replace(1, column)

    def replace(self, age: int, column: Floats | Iterable[float]) -> None:
        """Write a column again: 1 is the newest, 2 the one before."""
        position = (self._count - age) % self._capacity
        values = np.fromiter(column, dtype=np.float64, count=self.rows)
        self._data[:, position] = values
        self._data[:, position + self._capacity] = values

    def last(self, count: int) -> Floats:
        """A view of the newest columns, [rows, at most count]; valid until the next append."""
        count = min(count, len(self))
        end = (self._count - 1) % self._capacity + 1 + self._capacity
        return self._data[:, end - count : end]

    def since(self, start: float) -> Floats:
        """A view of the columns whose row 0 is at least `start`."""
        everything = self.last(len(self))
        first = int(np.searchsorted(everything[0], start))
        return everything[:, first:]

    def clear_row(self, row: int) -> None:
        """Set one row to 0 for all times."""
        self._data[row] = 0.0

    def widen(self, rows: int) -> None:
        """Have at least `rows` rows; new ones were always 0."""
        missing = max(0, rows - self.rows)
        self._data = np.pad(self._data, ((0, missing), (0, 0)))

    def clear(self) -> None:
        """Forget every column."""
        self._count = 0


class StackedSeries(Generic[K]):
    """What each of many holders had at each time; who was not named at a time had 0 then.

    A holder that was 0 in the whole ring is forgotten and its row used again, so rows stay few while processes come
    and go for hours.
    """

    def __init__(self, capacity: int) -> None:
        self._ring = Ring(17, capacity)
        self._rows: dict[K, int] = {}
        self._leaders: tuple[K, ...] = ()

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def keys(self) -> KeysView[K]:
        """Everyone who had something within the ring."""
        return self._rows.keys()

    def push(self, time_s: float, values: Mapping[K, float]) -> None:
        """Add what everyone has now."""
        newcomers = [key for key in values if key not in self._rows]
        for key, row in zip(newcomers, self._free_rows(len(newcomers), keep=values), strict=True):
            self._rows[key] = row
        column = np.zeros(self._ring.rows)
        column[0] = time_s
        for key, value in values.items():
            column[self._rows[key]] = value
        self._ring.append(column)

    def window(self, start_s: float, keys: Iterable[K]) -> tuple[Floats, Floats]:
        """Times [n] from `start_s` on and the values of `keys` [len(keys), n]."""
        data = self._ring.since(start_s)
        rows = [self._rows[key] for key in keys]
        return data[0], data[rows]

    def total(self, start_s: float) -> Floats:
        """What all had together [n]."""
        total: Floats = self._ring.since(start_s)[1:].sum(axis=0)
        return total

    def leaders(self, start_s: float, count: int, *, without: Iterable[K] = ()) -> tuple[K, ...]:
        """The `count` holders with the highest peaks, in the order in which they came to lead.

        A newcomer must exceed a leader by a fifth to take its place, so that bands do not flicker.
        """
        excluded = set(without)
        data = self._ring.since(start_s)
        peaks = data.max(axis=1, initial=0.0)
        scores = {
            key: peaks[row] * (1.2 if key in self._leaders else 1.0)
            for key, row in self._rows.items()
            if key not in excluded and peaks[row] > 0
        }
        best = sorted(scores, key=lambda key: -scores[key])[:count]
        stayed = [key for key in self._leaders if key in best]
        self._leaders = tuple(stayed + [key for key in best if key not in stayed])
        return self._leaders

    def _free_rows(self, count: int, keep: Collection[K]) -> list[int]:
        """Rows that nobody uses: drop who had nothing for the whole ring, then grow."""
        if len(self._rows) + count >= self._ring.rows:
            peaks = self._ring.last(len(self._ring)).max(axis=1, initial=0.0)
            self._rows = {key: row for key, row in self._rows.items() if key in keep or peaks[row] > 0}
        while len(self._rows) + count >= self._ring.rows:
            self._ring.widen(2 * self._ring.rows)
        taken = set(self._rows.values())
        free = [row for row in range(1, self._ring.rows) if row not in taken][:count]
        for row in free:
            self._ring.clear_row(row)
        return free


def interpolate(times: Floats, rows: Floats, at: Floats, gap_s: float) -> Floats:
    """The rows [r, n] read at other times [m]; NaN outside the data and wherever two samples are over `gap_s` apart."""
    if not len(times):
        return np.full((len(rows), len(at)), np.nan)
    right: npt.NDArray[np.int64] = np.searchsorted(times, at).clip(1, max(len(times) - 1, 1)).clip(max=len(times) - 1)
    left = np.maximum(right - 1, 0)
    span = times[right] - times[left]
    share = np.divide(at - times[left], span, out=np.zeros(len(at)), where=span > 0)
    result: Floats = rows[:, left] * (1 - share) + rows[:, right] * share
    outside = (at < times[0]) | (at > times[-1])
    in_gap = (span > gap_s) & (share > 0) & (share < 1)
    result[:, outside | in_gap] = np.nan
    return result


def hold(times: Floats, rows: Floats, edges: Floats) -> Floats:
    """The rows [r, n] per column between `edges` [m + 1], as they last until the next one: [r, m].

    Of several within one column the one with the largest first row stands, so no peak is lost. NaN before the data.
    """
    result = np.full((len(rows), len(edges) - 1), np.nan)
    if not len(times):
        return result
    latest = np.searchsorted(times, edges[1:], side="right") - 1
    known = latest >= 0
    result[:, known] = rows[:, latest[known]]
    column = np.searchsorted(edges, times, side="left") - 1
    inside = np.flatnonzero((column >= 0) & (column < len(edges) - 1))
    order = inside[np.lexsort((rows[0, inside], column[inside]))]  # the largest of each column comes last and stays
    result[:, column[order]] = rows[:, order]
    return result
