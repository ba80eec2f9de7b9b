"""The processes as rows of a table, kept in order and in place while samples come in."""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QColor, QPixmap

from app.gpu.record import ProcessIdentity, ProcessMemory
from app.widgets import format_bytes

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()
_NUMBERS_RIGHT = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)


class Column(Enum):
    """What a column says; the value is its heading."""

    NAME = "Process"
    PID = "PID"
    USER = "User"
    MEMORY = "Memory"
    KIND = "Kind"
    REASON = "Why not"


_SORT_KEYS: dict[Column, Callable[[ProcessMemory], Any]] = {
    Column.NAME: lambda process: process.name.casefold(),
    Column.PID: lambda process: process.identity.pid,
    Column.USER: lambda process: process.user.casefold(),
    # What is not told stands below everything that is.
    Column.MEMORY: lambda process: -1 if process.memory_bytes is None else process.memory_bytes,
    Column.KIND: lambda process: process.kind.value,
    Column.REASON: lambda process: process.protected_because,
}
_TEXTS: dict[Column, Callable[[ProcessMemory], str]] = {
    Column.NAME: lambda process: process.name,
    Column.PID: lambda process: str(process.identity.pid),
    Column.USER: lambda process: process.user,
    Column.MEMORY: lambda process: format_bytes(process.memory_bytes),
    Column.KIND: lambda process: process.kind.value,
    Column.REASON: lambda process: process.protected_because,
}


class ProcessTableModel(QAbstractTableModel):
    """Rows are moved, not made anew, so that selection and scroll position survive each sample.

    `colour_of` gives a process the colour that it has in the graph, "" for a transparent one, None for no swatch.
    """

    ticked_changed = Signal()

    def __init__(
        self, columns: Sequence[Column], colour_of: Callable[[ProcessMemory], str | None], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._columns = tuple(columns)
        self._colour_of = colour_of
        self._rows: list[ProcessMemory] = []
        self._sort_column = Column.MEMORY
        self._descending = True
        self._ticks: set[ProcessIdentity] | None = None
        self._swatches: dict[str, QPixmap] = {}

    @property
    def processes(self) -> tuple[ProcessMemory, ...]:
        """The rows as they stand."""
        return tuple(self._rows)

    @property
    def ticked(self) -> tuple[ProcessMemory, ...]:
        """The rows that the user has ticked."""
        ticks = self._ticks or set()
        return tuple(process for process in self._rows if process.identity in ticks)

    def allow_ticks(self) -> None:
        """Put a box before each name; none is ticked."""
        self._ticks = set()

    def clear_ticks(self) -> None:
        """Untick all."""
        ticked, self._ticks = self._ticks or set(), set()
        self._tell_changed(ticked)
        self.ticked_changed.emit()

    def toggle(self, row: int) -> None:
        """Tick or untick one row."""
        if self._ticks is not None:
            self._ticks ^= {self._rows[row].identity}
            self._tell_changed({self._rows[row].identity})
            self.ticked_changed.emit()

    def set_processes(self, processes: Iterable[ProcessMemory]) -> None:
        """Show these instead."""
        new = {process.identity: process for process in processes}
        self._remove_gone(new)
        old, self._rows = self._rows, [new[process.identity] for process in self._rows]
        here = {process.identity for process in old}
        self._append([process for identity, process in new.items() if identity not in here])
        changed = {now.identity for before, now in zip(old, self._rows, strict=False) if now != before}
        self._reorder()
        self._tell_changed(changed)

    def recolour(self) -> None:
        """The swatches may have other colours."""
        self._tell_changed({process.identity for process in self._rows})

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column, now and after each sample."""
        self._sort_column = self._columns[column]
        self._descending = order == Qt.SortOrder.DescendingOrder
        self._reorder()

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        """One row for each process."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        """The columns asked for."""
        return 0 if parent.isValid() else len(self._columns)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> str | int | None:
        """The headings; numbers stand right."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self._columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return column.value if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Words, swatch, box and tooltip of a cell."""
        process, column = self._rows[index.row()], self._columns[index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return _TEXTS[column](process)
            case Qt.ItemDataRole.ToolTipRole:
                return process.protected_because if column is Column.REASON else process.command or process.name
            case Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(column)
            case Qt.ItemDataRole.DecorationRole if column is Column.NAME:
                return self._swatch(self._colour_of(process))
            case Qt.ItemDataRole.CheckStateRole if column is Column.NAME and self._ticks is not None:
                return Qt.CheckState.Checked if process.identity in self._ticks else Qt.CheckState.Unchecked
        return None

    def setData(self, index: Index, _value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Only the boxes can be changed."""
        if role != Qt.ItemDataRole.CheckStateRole:
            return False
        self.toggle(index.row())
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Boxes can be ticked; nothing can be edited."""
        flags = super().flags(index)
        has_box = self._ticks is not None and self._columns[index.column()] is Column.NAME
        return flags | Qt.ItemFlag.ItemIsUserCheckable if has_box else flags

    def _remove_gone(self, new: dict[ProcessIdentity, ProcessMemory]) -> None:
        for row in reversed(range(len(self._rows))):
            if self._rows[row].identity not in new:
                self.beginRemoveRows(_NOWHERE, row, row)
                gone = self._rows.pop(row)
                self.endRemoveRows()
                if self._ticks and gone.identity in self._ticks:
                    self._ticks.discard(gone.identity)
                    self.ticked_changed.emit()

    def _append(self, processes: list[ProcessMemory]) -> None:
        if processes:
            first = len(self._rows)
            self.beginInsertRows(_NOWHERE, first, first + len(processes) - 1)
            self._rows += processes
            self.endInsertRows()

    def _reorder(self) -> None:
        key = _SORT_KEYS[self._sort_column]
        ordered = sorted(self._rows, key=key, reverse=self._descending)
        if [process.identity for process in ordered] == [process.identity for process in self._rows]:
            self._rows = ordered
            return
        self.layoutAboutToBeChanged.emit()
        places = {process.identity: row for row, process in enumerate(ordered)}
        old = self.persistentIndexList()
        new = [self.index(places[self._rows[index.row()].identity], index.column()) for index in old]
        self._rows = ordered
        self.changePersistentIndexList(old, new)
        self.layoutChanged.emit()

    def _tell_changed(self, changed: Collection[ProcessIdentity]) -> None:
        """These look different now; views paint again from the first of their rows to the last, and nothing else."""
        rows = [row for row, process in enumerate(self._rows) if process.identity in changed] if changed else []
        if rows:
            self.dataChanged.emit(self.index(rows[0], 0), self.index(rows[-1], len(self._columns) - 1))

    def _swatch(self, colour: str | None) -> QPixmap | None:
        """A small square, transparent where a process has no band of its own, so that names stay in line."""
        if colour is None:
            return None
        if colour not in self._swatches:
            pixmap = QPixmap(10, 10)
            pixmap.fill(QColor(colour) if colour else Qt.GlobalColor.transparent)
            self._swatches[colour] = pixmap
        return self._swatches[colour]


def _alignment(column: Column) -> int:
    if column in (Column.PID, Column.MEMORY):
        return _NUMBERS_RIGHT
    return int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
