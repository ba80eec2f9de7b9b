"""Graph 3: what each step computed, as stacked bars, and how many sequences ran and waited below them."""

from collections.abc import Sequence

import numpy as np

from app.plots.colours import IN_USE_COLOUR
from app.plots.frame import Frame, Level, Margins
from app.plots.live_plot import LivePlot
from app.plots.ranges import Ceiling, multiples, tick_text, ticks, whole_step
from app.plots.raster import Pixels, draw_stack, hatch, stack_tops, widen
from app.plots.series import Floats, Ring
from app.theme import DATA_COLOURS, DECODE_COLOUR, PREFILL_COLOUR, Theme
from engine.events import StepStats

BAR_PX = 4  # three of colour, one between
RUNNING_COLOUR = IN_USE_COLOUR
WAITING_COLOUR = DATA_COLOURS[4]
_CAPACITY = 1024
_STEP, _PREFILL, _DECODE, _RUNNING, _WAITING, _PREEMPTED, _MS = range(7)
_PREEMPTED_NUMBER = 3  # in the picture of tokens
_WAITING_NUMBER = 2  # in the picture of sequences


class StepSeries:
    """The last steps, one column each."""

    def __init__(self) -> None:
        self._ring = Ring(7, _CAPACITY)

    def push(self, stats: StepStats) -> None:
        """Add one step. A number that does not rise means another engine: start anew."""
        newest = self._ring.last(1)
        if newest.size and stats.step <= newest[_STEP, 0]:
            self._ring.clear()
        self._ring.append(
            (
                stats.step, stats.prefill_tokens, stats.decode_tokens, stats.running, stats.waiting, stats.preempted,
                stats.step_ms,
            )
        )  # fmt: skip

    def clear(self) -> None:
        """Forget every step."""
        self._ring.clear()

    def last(self, count: int) -> Floats:
        """The newest steps [7, at most count]."""
        return self._ring.last(count)


class StepPlot(LivePlot):
    """Bars for the steps of a shared series, newest on the right once the width is full."""

    def __init__(self, theme: Theme, series: StepSeries, margins: Margins) -> None:
        self.series = series
        super().__init__(theme, margins)

    @property
    def shown(self) -> Floats:
        """The steps in the picture [7, n]."""
        return self.series.last(max(1, self.area.width() // BAR_PX))

    def hover_text(self, x: float, _y: float) -> str:
        """Everything about one step."""
        steps = self.shown
        if not 0 <= x < steps.shape[1]:
            return ""
        step = steps[:, int(x)]
        return (
            f"Step {step[_STEP]:,.0f} · {step[_MS]:.3g} ms\n"
            f"{step[_PREFILL]:,.0f} prefill + {step[_DECODE]:,.0f} decode tokens\n"
            f"{step[_RUNNING]:.0f} running · {step[_WAITING]:.0f} waiting · {step[_PREEMPTED]:.0f} preempted"
        )

    def bars(self, values: Floats, end: float, least_px: int) -> Pixels:
        """Stacked bars of `values` [2, steps], BAR_PX wide each, in a picture of the full size."""
        width, height = self.image_size
        picture = draw_stack(stack_tops(values, height / end, height, least_px), (1, 2), height)
        return widen(picture, self._bar_px, width)

    @property
    def _bar_px(self) -> int:
        ratio: float = self.devicePixelRatioF()
        return round(BAR_PX * ratio)

    def step_labels(self, steps: Floats) -> tuple[tuple[float, str], ...]:
        """Round step numbers below their bars."""
        if not steps.size:
            return ()
        first, last = steps[_STEP, 0], steps[_STEP, -1]
        length = self.area.width() / BAR_PX
        step_of_labels = whole_step(length, self.area.width() // 90)
        shown = multiples(first, last, step_of_labels) or (first,)
        texts = [f"step {shown[0]:,.0f}", *(f"{step:,.0f}" for step in shown[1:])]
        return tuple((step - first + 0.5, text) for step, text in zip(shown, texts, strict=True))


class StepBars(StepPlot):
    """Prefill tokens on top of decode tokens, the token budget as a dashed line, preemptions as ticks on top."""

    def __init__(self, theme: Theme, series: StepSeries) -> None:
        self._budget_tokens = 0
        self._ceiling = Ceiling(smallest=4)
        super().__init__(theme, series, Margins(bottom_px=5))

    def set_budget(self, tokens: int) -> None:
        """How many tokens a step may compute at most."""
        self._budget_tokens = tokens
        self.mark_dirty()

    def lookup_colours(self) -> Sequence[str]:
        """Decode, prefill, preempted."""
        return (DECODE_COLOUR, PREFILL_COLOUR, self._theme.colours.text)

    def draw(self) -> None:
        """Zoom to the largest step, and fill the bars."""
        steps = self.shown
        tokens = steps[[_DECODE, _PREFILL]]
        end = self._ceiling.follow(float(tokens.sum(axis=0).max(initial=0.0)))
        budget = self._budget_tokens
        self.frame = Frame(
            x_range=(0.0, self.area.width() / BAR_PX),
            y_range=(0.0, end),
            y_labels=tuple((value, tick_text(value)) for value in ticks(end, self.tick_room)),
            levels=(Level(budget, f"token budget {budget:,}"),) if budget else (),
            unit="tokens",
        )
        pixels = self.bars(tokens, end, 2)
        self._mark_preempted(pixels, steps)
        self.show_pixels(pixels)

    def _mark_preempted(self, pixels: Pixels, steps: Floats) -> None:
        bar = self._bar_px
        for index in np.flatnonzero(steps[_PREEMPTED]):
            pixels[: 2 * bar - 2, index * bar : (index + 1) * bar - 1] = _PREEMPTED_NUMBER


class QueueStrip(StepPlot):
    """Sequences that run, and hatched on top of them those that wait."""

    def __init__(self, theme: Theme, series: StepSeries) -> None:
        self._ceiling = Ceiling(smallest=2)
        super().__init__(theme, series, Margins(top_px=7))

    def lookup_colours(self) -> Sequence[str]:
        """Running, waiting."""
        return (RUNNING_COLOUR, WAITING_COLOUR)

    def draw(self) -> None:
        """Zoom to the longest queue, and fill the bars."""
        steps = self.shown
        sequences = steps[[_RUNNING, _WAITING]]
        end = self._ceiling.follow(float(sequences.sum(axis=0).max(initial=0.0)))
        self.frame = Frame(
            x_range=(0.0, self.area.width() / BAR_PX),
            y_range=(0.0, end),
            x_labels=self.step_labels(steps),
            y_labels=((0.0, "0"), (end, tick_text(end))),
        )
        pixels = self.bars(sequences, end, 1)
        hatch(pixels, _WAITING_NUMBER)
        self.show_pixels(pixels)
