"""What a plot's edges mean and what is written on it: frozen values, no painting."""

from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect


@dataclass(frozen=True, slots=True)
class Margins:
    """Room around the picture for numbers and words, in pixels."""

    left_px: int = 40
    top_px: int = 17
    right_px: int = 2
    bottom_px: int = 18

    def inside(self, width_px: int, height_px: int) -> QRect:
        """The picture's place in a widget of this size."""
        return QRect(
            self.left_px,
            self.top_px,
            max(0, width_px - self.left_px - self.right_px),
            max(0, height_px - self.top_px - self.bottom_px),
        )


@dataclass(frozen=True, slots=True)
class Level:
    """A dashed horizontal line; `text` names it in the corner, where it also stands when the line is above the axis."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An event, written where it happened."""

    x: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The axes of one drawing.

    Attributes:
        x_labels, y_labels: values and the words for them; each y label has a hairline.
        unit: written above the vertical numbers.
        caption: written in the corner above the picture, after the levels.
    """

    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    x_labels: tuple[tuple[float, str], ...] = ()
    y_labels: tuple[tuple[float, str], ...] = ()
    levels: tuple[Level, ...] = ()
    marks: tuple[Mark, ...] = ()
    unit: str = ""
    caption: str = ""

    def x_px(self, area: QRect, x: float) -> int:
        """Where a value stands horizontally."""
        low, high = self.x_range
        return round(area.left() + (x - low) / (high - low) * area.width())

    def y_px(self, area: QRect, y: float) -> int:
        """Where a value stands vertically."""
        low, high = self.y_range
        return round(area.top() + area.height() * (1 - (y - low) / (high - low)))

    def value_at(self, area: QRect, point: QPoint) -> tuple[float, float]:
        """The values under the middle of a pixel."""
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        x_share = (point.x() + 0.5 - area.left()) / max(1, area.width())
        y_share = (point.y() + 0.5 - area.top()) / max(1, area.height())
        return x0 + x_share * (x1 - x0), y1 - y_share * (y1 - y0)
