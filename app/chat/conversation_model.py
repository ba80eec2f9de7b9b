"""The rows of the conversation list: which there are, and how one is drawn."""

from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRectF, QSize, Qt, Slot
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.chat.controller import ChatController
from app.chat.conversation import Conversation

DOT_PX = 7
PADDING_PX = 9
ROW_PX = 32

Index = QModelIndex | QPersistentModelIndex


class Role(IntEnum):
    """What the list's model knows beside the title."""

    ID = Qt.ItemDataRole.UserRole
    RUNNING = Qt.ItemDataRole.UserRole + 1


class ConversationModel(QAbstractListModel):
    """The conversations that match the search, the newest first."""

    def __init__(self, controller: ChatController, parent: QWidget) -> None:
        super().__init__(parent)
        self._controller = controller
        self._search = ""
        self._rows: list[Conversation] = []
        controller.conversations_changed.connect(self.refresh)
        controller.running_changed.connect(self._on_running_changed)
        self.refresh()

    def rowCount(self, parent: Index | None = None) -> int:
        """How many match."""
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Title, id, and whether an answer is being written."""
        conversation = self._rows[index.row()]
        running = self._controller.is_running(conversation.id)
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.EditRole:
                return conversation.title
            case Qt.ItemDataRole.ToolTipRole | Qt.ItemDataRole.AccessibleTextRole:
                return f"{conversation.title}, being answered" if running else conversation.title
            case Role.ID:
                return conversation.id
            case Role.RUNNING:
                return running
            case _:
                return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Rows are renamed in place."""
        return super().flags(index) | Qt.ItemFlag.ItemIsEditable

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Rename."""
        if role != Qt.ItemDataRole.EditRole:
            return False
        self._controller.rename(self._rows[index.row()].id, str(value))
        return True

    def set_search(self, text: str) -> None:
        """Show only what contains `text`."""
        self._search = text.strip()
        self.refresh()

    def index_of(self, conversation_id: str) -> QModelIndex:
        """Where a conversation stands; invalid when it is not shown."""
        for row, conversation in enumerate(self._rows):
            if conversation.id == conversation_id:
                return self.index(row)
        return QModelIndex()

    @Slot()
    def refresh(self) -> None:
        """Ask the controller again."""
        rows = list(self._controller.conversations)
        if self._search:
            found = self._controller.search(self._search)
            rows = [row for row in rows if row.id in found]
        if [row.id for row in rows] == [row.id for row in self._rows]:
            self._rows = rows
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    @Slot(str)
    def _on_running_changed(self, conversation_id: str) -> None:
        index = self.index_of(conversation_id)
        if index.isValid():
            self.dataChanged.emit(index, index)


class ConversationDelegate(QStyledItemDelegate):
    """A title, and a dot at the right while an answer is being written."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        """One row."""
        return QSize(super().sizeHint(option, index).width(), ROW_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """The style draws the row, we draw what is in it."""
        self.initStyleOption(option, index)
        title, option.text = option.text, ""
        style = option.widget.style()
        style.drawControl(QStyle.ControlElement.CE_ItemViewItem, option, painter, option.widget)
        running = bool(index.data(Role.RUNNING))
        inner = option.rect.adjusted(PADDING_PX, 0, -PADDING_PX - (DOT_PX + 8 if running else 0), 0)
        painter.save()
        painter.setPen(option.palette.text().color())
        text = option.fontMetrics.elidedText(title, Qt.TextElideMode.ElideRight, inner.width())
        painter.drawText(inner, int(Qt.AlignmentFlag.AlignVCenter), text)
        if running:
            self._paint_dot(painter, option)
        painter.restore()

    def _paint_dot(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(option.palette.text())
        x = option.rect.right() - PADDING_PX - DOT_PX
        painter.drawEllipse(QRectF(x, option.rect.center().y() - DOT_PX / 2 + 0.5, DOT_PX, DOT_PX))
