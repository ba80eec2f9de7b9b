"""The table of the processes that hold memory: who, whose, how much. Sorting and looks; the rows are the model's."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QModelIndex, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView, QTableView, QWidget

from app.gpu.record import ProcessMemory
from app.monitor.process_model import Column, ProcessTableModel

ALL_COLUMNS = (Column.NAME, Column.PID, Column.USER, Column.MEMORY, Column.KIND)
REASON_COLUMNS = (Column.NAME, Column.PID, Column.MEMORY, Column.REASON)
ROW_PX = 22
_WIDTHS_PX = {Column.PID: 72, Column.USER: 72, Column.MEMORY: 80, Column.KIND: 104}


def no_colour(_process: ProcessMemory) -> None:
    """For tables without a graph beside them."""


class ProcessTable(QTableView):
    """A sortable table, largest holders first."""

    def __init__(
        self,
        columns: Sequence[Column] = ALL_COLUMNS,
        colour_of: Callable[[ProcessMemory], str | None] = no_colour,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.model_of_processes = ProcessTableModel(columns, colour_of, self)
        self.setModel(self.model_of_processes)
        self.setAccessibleName("Processes that hold memory")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(ROW_PX)
        self.setIconSize(QSize(10, 10))
        self._set_up_headers(columns)
        self.setSortingEnabled(True)
        self.sortByColumn(list(columns).index(Column.MEMORY), Qt.SortOrder.DescendingOrder)

    def allow_ticks(self) -> None:
        """Boxes before the names; a click anywhere else in a row works them, too."""
        self.model_of_processes.allow_ticks()
        self.clicked.connect(self._on_clicked)

    def _on_clicked(self, index: QModelIndex) -> None:
        if index.column() != 0:
            self.model_of_processes.toggle(index.row())

    def _set_up_headers(self, columns: Sequence[Column]) -> None:
        rows, header = self.verticalHeader(), self.horizontalHeader()
        rows.hide()
        rows.setDefaultSectionSize(ROW_PX)
        rows.setMinimumSectionSize(ROW_PX)
        header.setHighlightSections(False)
        header.setMinimumSectionSize(48)
        wide = Column.REASON if Column.REASON in columns else Column.NAME
        for number, column in enumerate(columns):
            if column is wide:
                header.setSectionResizeMode(number, QHeaderView.ResizeMode.Stretch)
            else:
                self.setColumnWidth(number, _WIDTHS_PX.get(column, 150))


class WholeRows(QWidget):
    """Room for a table, of which it takes as much as whole rows need: none is cut at the end."""

    def __init__(self, table: ProcessTable, least_rows: int) -> None:
        super().__init__()
        self._table = table
        table.setParent(self)
        self.setMinimumHeight(self._header_px + least_rows * ROW_PX)

    @property
    def _header_px(self) -> int:
        return self._table.horizontalHeader().sizeHint().height()

    def resizeEvent(self, _event: QResizeEvent) -> None:
        """Share the new room out."""
        rows = (self.height() - self._header_px) // ROW_PX
        self._table.setGeometry(0, 0, self.width(), self._header_px + rows * ROW_PX)
