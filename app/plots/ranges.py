"""Where an axis ends and where its numbers stand. Plain arithmetic."""

import math

_ROUND_ENDS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def round_up(value: float) -> float:
    """The next round number at or above `value`; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((end * power for end in _ROUND_ENDS if end * power >= value * (1 - 1e-12)), 10.0 * power)


class Ceiling:
    """The upper end of an axis that zooms to what is there.

    It rises at once and falls only when less than half of it is needed, so that it does not hop.
    """

    def __init__(self, smallest: float = 1.0) -> None:
        self._smallest = smallest
        self._value = round_up(smallest)

    @property
    def value(self) -> float:
        """The end in force."""
        return self._value

    def follow(self, peak: float, *, limit: float = math.inf) -> float:
        """The end for data that reaches `peak`; never above `limit`, which is what can exist at all."""
        wanted = round_up(max(peak * 1.08, self._smallest))
        if wanted > self._value or wanted < 0.5 * self._value:
            self._value = wanted
        return min(self._value, limit)


def ticks(end: float, room: int) -> tuple[float, ...]:
    """Round numbers from 0 to `end`, at most `room` of them above 0 and at least one."""
    return multiples(0.0, end, min(_step_above(end / max(1, room)), _step_below(end)))


def multiples(start: float, end: float, step: float) -> tuple[float, ...]:
    """The multiples of `step` within [start, end]."""
    first = math.ceil(start / step - 1e-9)
    return tuple(number * step for number in range(first, math.floor(end / step + 1e-9) + 1))


def whole_step(length: float, room: int) -> int:
    """A round whole step that divides `length` into at most about `room` parts."""
    return max(1, round(_step_above(length / max(1, room))))


def _step_above(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def _step_below(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= value * (1 + 1e-9))


def tick_text(value: float) -> str:
    """A number on an axis: 0, 0.5, 12, 1,500."""
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"
