"""The memory card: values, legend, table, states."""

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from pytestqt.qtbot import QtBot

from app.gpu.record import MemoryKind, ProcessKind
from app.monitor.memory_panel import MemoryPanel
from app.monitor.process_table import ROW_PX
from app.plots.legend import Swatch
from app.theme import OWN_COLOUR, Theme
from tests.fakes.memory import GIB, MIB, process, sample

OWN = process("kvscope", 1, 2 * GIB, ProcessKind.OWN)
LLAMA = process("llama", 5, int(5.8 * GIB), ProcessKind.MODEL_SERVER)


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme) -> MemoryPanel:
    panel = MemoryPanel(theme)
    panel.resize(500, 360)
    qtbot.addWidget(panel)
    panel.show()
    qtbot.waitExposed(panel)
    return panel


def texts(panel: MemoryPanel) -> list[str]:
    return [entry.text for entry in panel.legend.entries]


def test_before_the_first_sample(panel: MemoryPanel) -> None:
    assert panel.plot.message == "Looking at the memory…"
    assert panel.values.text() == ""


def test_vram(panel: MemoryPanel) -> None:
    rows = [LLAMA, OWN, process("hidden", 9, None)]
    panel.on_sample(sample(0, rows, total_bytes=12 * GIB, unattributed_bytes=GIB // 4, reserved_bytes=300 * MIB))
    panel.refresh()
    assert panel.accessibleName() == "VRAM by process"
    assert panel.values.text() == "12.0 GiB card · 8.0 used · 3.7 free"
    assert texts(panel) == ["KVScope 2.0", "llama 5.8", "unknown 0.25", "driver 0.29", "GiB"]
    own, llama, unknown = panel.legend.entries[:3]
    assert own.colour == OWN_COLOUR != llama.colour
    assert unknown.swatch is Swatch.HATCHED
    model = panel.table.model_of_processes
    assert [(p.name, model.index(row, 3).data()) for row, p in enumerate(model.processes)] == [
        ("llama", "5.80 GiB"),
        ("kvscope", "2.00 GiB"),
        ("hidden", "unknown"),
    ]


def test_system_memory(panel: MemoryPanel) -> None:
    look = sample(0, [OWN], total_bytes=24 * GIB, shared_bytes=GIB, memory=MemoryKind.SYSTEM, note="A note.")
    panel.on_sample(look)
    panel.refresh()
    assert panel.accessibleName() == "RAM by process"
    assert panel.values.text() == "24.0 GiB · 3.0 used · 21.0 free"
    assert "shared 1.0" in texts(panel)
    assert panel.note.isVisible()
    assert panel.note.text() == "A note."


def test_what_is_counted_twice_is_said(panel: MemoryPanel) -> None:
    panel.on_sample(sample(0, [LLAMA, OWN], unattributed_bytes=-GIB))
    panel.refresh()
    assert "1.0 counted twice (shared buffers)" in texts(panel)


def test_graph_legend_and_table_share_the_colours(panel: MemoryPanel) -> None:
    panel.on_sample(sample(0, [LLAMA, OWN]))
    panel.refresh()
    model = panel.table.model_of_processes
    for row, each in enumerate(model.processes):
        swatch = model.index(row, 0).data(Qt.ItemDataRole.DecorationRole).toImage().pixelColor(4, 4).name()
        entry = next(e for e in panel.legend.entries if e.text.split()[0].lower() == each.name)
        assert swatch == entry.colour


def test_table_can_be_put_away(panel: MemoryPanel) -> None:
    panel.on_sample(sample(0, [LLAMA]))
    panel.table_toggle.click()
    assert not panel.table.isVisible()
    panel.on_sample(sample(1, [LLAMA, OWN]))
    panel.refresh()
    panel.table_toggle.click()
    assert panel.table.isVisible()
    assert len(panel.table.model_of_processes.processes) == 2


def test_a_failed_sampler_offers_a_restart(qtbot: QtBot, panel: MemoryPanel) -> None:
    panel.show_failure("Looking at the memory stopped.")
    assert panel.plot.message == "Looking at the memory stopped."
    assert panel.again_button.isVisible()
    with qtbot.waitSignal(panel.restart_requested):
        panel.again_button.click()
    panel.on_sample(sample(0, [LLAMA]))
    panel.refresh()
    assert panel.plot.message == ""
    assert not panel.again_button.isVisible()


def test_the_table_shows_whole_rows_at_any_height(panel: MemoryPanel, qtbot: QtBot) -> None:
    for height in range(300, 380, 7):
        panel.resize(500, height)
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
        shown = panel.table.viewport().height()
        assert shown % ROW_PX == 0
        assert shown >= 3 * ROW_PX
        assert panel.table.geometry().bottom() <= panel.table.parentWidget().height()
