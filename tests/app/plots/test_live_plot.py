"""When a plot is painted, and when not."""

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QImage, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QToolTip, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.plots.frame import Frame, Level, Margins, Mark
from app.plots.live_plot import LivePlot
from app.theme import DARK, LIGHT, Theme


class Flat(LivePlot):
    """A picture of one colour, the number 1."""

    drawn = 0

    def lookup_colours(self) -> tuple[str, ...]:
        return ("#4477aa",)

    def draw(self) -> None:
        self.drawn += 1
        width, height = self.image_size
        self.frame = Frame(x_range=(0, 10), y_range=(0, 5), unit="things", levels=(Level(4, "limit"),))
        self.show_pixels(np.ones((height, width), dtype=np.uint8))

    def hover_text(self, x: float, y: float) -> str:
        return f"{x:.1f} {y:.1f}"


@pytest.fixture
def plot(qtbot: QtBot, theme: Theme) -> Flat:
    plot = Flat(theme)
    plot.resize(300, 200)
    qtbot.addWidget(plot)
    plot.show()
    qtbot.waitExposed(plot)
    qtbot.waitUntil(lambda: plot.drawn > 0)
    return plot


def settle(qtbot: QtBot, plot: LivePlot) -> None:
    """Until everything that is on its way to the screen has been painted."""
    before = -1
    while before != plot.repaints:
        before = plot.repaints
        qtbot.wait(20)


def colour_at(plot: LivePlot, x: int, y: int) -> str:
    image: QImage = plot.grab().toImage()
    return QColor(image.pixel(x, y)).name()


def test_one_refresh_is_one_painting(qtbot: QtBot, plot: Flat) -> None:
    settle(qtbot, plot)
    drawn, painted = plot.drawn, plot.repaints
    for _ in range(50):
        plot.mark_dirty()
    plot.refresh()
    settle(qtbot, plot)
    assert (plot.drawn, plot.repaints) == (drawn + 1, painted + 1)
    plot.refresh()  # nothing has come
    settle(qtbot, plot)
    assert (plot.drawn, plot.repaints) == (drawn + 1, painted + 1)


def test_nothing_is_drawn_while_hidden(qtbot: QtBot, plot: Flat) -> None:
    plot.hide()
    settle(qtbot, plot)
    drawn, painted = plot.drawn, plot.repaints
    plot.mark_dirty()
    plot.refresh()
    settle(qtbot, plot)
    assert (plot.drawn, plot.repaints) == (drawn, painted)
    assert not plot.needs_drawing
    plot.show()
    qtbot.waitUntil(lambda: plot.drawn == drawn + 1)


def test_nothing_is_drawn_while_minimised(qtbot: QtBot, theme: Theme) -> None:
    window = QWidget()
    layout = QVBoxLayout(window)
    plot = Flat(theme)
    layout.addWidget(plot)
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: plot.drawn > 0)
    window.showMinimized()
    drawn = plot.drawn
    plot.mark_dirty()
    plot.refresh()
    assert plot.drawn == drawn
    window.showNormal()
    plot.refresh()
    assert plot.drawn == drawn + 1


def test_the_picture_fills_its_place_after_a_resize(qtbot: QtBot, plot: Flat) -> None:
    plot.resize(420, 260)
    settle(qtbot, plot)
    area = Margins().inside(420, 260)
    for x, y in ((area.left(), area.top()), (area.right(), area.bottom())):
        assert colour_at(plot, x, y) == "#4477aa"
    assert colour_at(plot, area.left() - 1, area.bottom()) == LIGHT.card


def test_theme_changes_the_card_but_not_the_data(qtbot: QtBot, plot: Flat, theme: Theme) -> None:
    theme.set_choice("dark")
    settle(qtbot, plot)
    area = plot.area
    assert colour_at(plot, 1, plot.height() - 1) == DARK.card
    assert colour_at(plot, area.left() + 20, area.bottom() - 3) == "#4477aa"


def test_words_instead_of_a_picture(qtbot: QtBot, plot: Flat) -> None:
    plot.set_message("Nothing here.")
    plot.refresh()
    settle(qtbot, plot)
    drawn = plot.drawn
    assert colour_at(plot, plot.area.left() + 2, plot.area.bottom() - 2) == LIGHT.card
    plot.mark_dirty()
    plot.refresh()
    assert plot.drawn == drawn  # no picture is computed
    plot.set_message("")
    plot.refresh()
    assert plot.drawn == drawn + 1
    assert colour_at(plot, plot.area.left() + 2, plot.area.bottom() - 2) == "#4477aa"


def test_old_data_is_grey(qtbot: QtBot, plot: Flat) -> None:
    fresh = QColor(colour_at(plot, plot.area.left() + 2, plot.area.bottom() - 2))
    plot.set_stale("No sample for 7 s.")
    plot.refresh()
    stale = QColor(colour_at(plot, plot.area.left() + 2, plot.area.bottom() - 2))
    assert stale.hsvSaturation() < fresh.hsvSaturation() / 2


def test_hover_reads_the_values_under_the_mouse(qtbot: QtBot, plot: Flat) -> None:
    area = plot.area
    QTest.mouseMove(plot.viewport(), QPoint(area.center().x(), area.top()))
    qtbot.waitUntil(QToolTip.isVisible)
    assert QToolTip.text() == "5.0 5.0"
    QTest.mouseMove(plot.viewport(), QPoint(1, 1))
    qtbot.waitUntil(lambda: not QToolTip.isVisible() or QToolTip.text() == "")


def test_clicks_and_wheel_go_to_the_parent(plot: Flat) -> None:
    at = QPointF(50, 50)
    wheel = QWheelEvent(
        at, at, QPoint(0, 0), QPoint(0, 120), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    plot.wheelEvent(wheel)
    assert not wheel.isAccepted()


def test_marks_are_written_at_their_place(qtbot: QtBot, plot: Flat) -> None:
    plot.frame = Frame(x_range=(0, 10), y_range=(0, 5), marks=(Mark(5, "stopped"), Mark(-3, "outside")))
    image = plot.grab().toImage()
    column = plot.frame.x_px(plot.area, 5)
    colours = {QColor(image.pixel(column, y)).name() for y in range(plot.area.top(), plot.area.bottom())}
    assert LIGHT.text in colours


def test_no_opengl(plot: Flat) -> None:
    assert type(plot.viewport()) is QWidget
