"""Rows stay in order and in place while samples come in."""

import random

import pytest
from PySide6.QtCore import QPersistentModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gpu.record import ProcessIdentity, ProcessMemory
from app.monitor.process_model import Column, ProcessTableModel
from app.monitor.process_table import ALL_COLUMNS, ProcessTable, no_colour
from tests.fakes.memory import GIB, MIB, process


@pytest.fixture
def model(qapp: QApplication) -> ProcessTableModel:
    return ProcessTableModel(ALL_COLUMNS, no_colour)


def names(model: ProcessTableModel) -> list[str]:
    return [model.index(row, 0).data() for row in range(model.rowCount())]


def some(random_numbers: random.Random) -> list[ProcessMemory]:
    pids = random_numbers.sample(range(1, 15), random_numbers.randint(0, 12))
    return [process(f"p{pid}", pid, random_numbers.choice([None, pid * MIB, 5 * MIB])) for pid in pids]


@pytest.mark.parametrize("seed", range(5))
def test_the_model_keeps_qts_rules_and_what_it_is_told(model: ProcessTableModel, seed: int) -> None:
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    numbers = random.Random(seed)
    for _ in range(30):
        processes = some(numbers)
        model.sort(numbers.randrange(5), numbers.choice(list(Qt.SortOrder)))
        model.set_processes(processes)
        assert set(model.processes) == set(processes)
    del tester


def test_largest_first_and_unknown_last(model: ProcessTableModel) -> None:
    model.set_processes([process("small", 1, MIB), process("unknown", 2, None), process("large", 3, GIB)])
    assert names(model) == ["large", "small", "unknown"]
    memory = [model.index(row, 3).data() for row in range(3)]
    assert memory == ["1.00 GiB", "1 MiB", "unknown"]


def test_sorting_lasts_over_samples(model: ProcessTableModel) -> None:
    model.sort(ALL_COLUMNS.index(Column.PID), Qt.SortOrder.AscendingOrder)
    model.set_processes([process("b", 20, GIB), process("a", 9, MIB)])
    assert names(model) == ["a", "b"]
    model.set_processes([process("c", 10, GIB), process("b", 20, GIB), process("a", 9, MIB)])
    assert names(model) == ["a", "c", "b"]


def test_a_selected_row_follows_its_process(model: ProcessTableModel) -> None:
    model.set_processes([process("a", 1, 5 * MIB), process("b", 2, 4 * MIB), process("c", 3, 3 * MIB)])
    index = QPersistentModelIndex(model.index(1, 0))
    model.set_processes([process("c", 3, 9 * MIB), process("b", 2, 1 * MIB), process("d", 4, 7 * MIB)])
    assert index.isValid()
    assert index.data() == "b"
    assert index.row() == 2


def test_ticks_follow_the_process_not_the_pid(model: ProcessTableModel) -> None:
    model.allow_ticks()
    model.set_processes([process("a", 1, 5 * MIB), process("b", 2, 4 * MIB)])
    assert model.ticked == ()
    model.setData(model.index(1, 0), Qt.CheckState.Checked.value, Qt.ItemDataRole.CheckStateRole)
    model.set_processes([process("b", 2, 9 * MIB), process("a", 1, 5 * MIB)])
    assert [row.name for row in model.ticked] == ["b"]
    reused = process("other", 2, 9 * MIB)
    reused = ProcessMemory(
        identity=ProcessIdentity(2, 77777), name=reused.name, user="", command="", memory_bytes=1, kind=reused.kind
    )
    model.set_processes([reused])
    assert model.ticked == ()


def test_a_click_in_the_row_ticks_it(qtbot: QtBot) -> None:
    table = ProcessTable()
    table.allow_ticks()
    qtbot.addWidget(table)
    table.resize(500, 200)
    table.show()
    table.model_of_processes.set_processes([process("a", 1, 5 * MIB), process("b", 2, 4 * MIB)])
    place = table.visualRect(table.model_of_processes.index(1, 3)).center()
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert [row.name for row in table.model_of_processes.ticked] == ["b"]
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert table.model_of_processes.ticked == ()


def test_without_boxes_nothing_can_be_ticked(model: ProcessTableModel) -> None:
    model.set_processes([process("a", 1, 5 * MIB)])
    assert model.index(0, 0).data(Qt.ItemDataRole.CheckStateRole) is None
    assert not model.flags(model.index(0, 0)) & Qt.ItemFlag.ItemIsUserCheckable
    model.toggle(0)
    assert model.ticked == ()


def test_only_what_changed_is_told(model: ProcessTableModel) -> None:
    rows = [process(f"p{pid}", pid, (100 - pid) * MIB) for pid in range(1, 50)]
    model.set_processes(rows)
    told: list[tuple[int, int]] = []
    model.dataChanged.connect(lambda first, last: told.append((first.row(), last.row())))
    model.set_processes(list(rows))
    assert told == []
    rows[7] = process("p8", 8, 92 * MIB + 1)
    model.set_processes(rows)
    assert told == [(7, 7)]
    told.clear()
    model.recolour()
    assert told == [(0, 48)]
