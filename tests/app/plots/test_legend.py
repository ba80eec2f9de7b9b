from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.plots.legend import Entry, Legend, Swatch
from app.theme import Theme


def make(qtbot: QtBot, theme: Theme, rows: int, width: int) -> Legend:
    legend = Legend(theme, rows)
    qtbot.addWidget(legend)
    legend.resize(width, legend.sizeHint().height())
    legend.show()
    qtbot.waitExposed(legend)
    return legend


def entries(count: int) -> tuple[Entry, ...]:
    return tuple(Entry(f"process {index} 1.0", "#4477aa") for index in range(count))


def test_what_has_no_room_is_counted_and_told(qtbot: QtBot, theme: Theme) -> None:
    legend = make(qtbot, theme, 2, 400)
    legend.set_entries(entries(12))
    shown = len(legend.entries) - len(legend.hidden)
    assert 2 <= shown < 12
    assert legend.toolTip() == "\n".join(entry.text for entry in legend.hidden)
    legend.resize(4000, legend.height())
    assert legend.hidden == ()
    assert legend.toolTip() == ""


def test_the_height_does_not_depend_on_the_entries(qtbot: QtBot, theme: Theme) -> None:
    legend = make(qtbot, theme, 2, 400)
    before = legend.sizeHint()
    legend.set_entries(entries(30))
    assert legend.sizeHint() == before


def test_entries_stay_inside(qtbot: QtBot, theme: Theme) -> None:
    legend = make(qtbot, theme, 1, 300)
    legend.set_entries(entries(9))
    assert all(place.right() <= legend.width() for _, place in legend._placed)
    assert legend.accessibleDescription().count("process") == 9


def test_swatches(qtbot: QtBot, theme: Theme) -> None:
    legend = make(qtbot, theme, 1, 300)
    legend.set_entries((Entry("solid", "#ee6677"), Entry("hatched", "#228833", Swatch.HATCHED), Entry("GiB")))
    image = legend.grab().toImage()
    colours = [QColor(image.pixel(x, y)).name() for x in range(image.width()) for y in range(image.height())]
    assert colours.count("#ee6677") == 100
    assert 0 < colours.count("#228833") < 60
