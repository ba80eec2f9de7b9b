"""The left pane: begins, finds, renames and deletes conversations. Keeps nothing that the controller does not know."""

import re

from PySide6.QtCore import (
    QItemSelectionModel,
    QModelIndex,
    QPoint,
    Qt,
    QTimer,
    Signal,
    Slot,
)
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.controller import ChatController
from app.chat.conversation import Conversation
from app.chat.conversation_model import PADDING_PX, ConversationDelegate, ConversationModel, Role
from app.chat.markdown_blocks import BREAK_OPPORTUNITY
from app.widgets import ElidedLabel

SEARCH_DELAY_MS = 150
UNDO_MS = 10_000
SOUGHT_CHARS = 40  # of a search without results that are said again
LONG_WORD = re.compile(r"\S{12}(?=\S)")


class UndoBar(QFrame):
    """Says what was deleted and offers it back for a while."""

    def __init__(self, controller: ChatController) -> None:
        super().__init__()
        self.setObjectName("card")
        self._controller = controller
        self._deleted: Conversation | None = None
        self._label = ElidedLabel()
        undo = QPushButton("Undo")
        undo.setAccessibleName("Undo deleting")
        undo.setToolTip("Bring the conversation back")
        undo.clicked.connect(self.undo)
        row = QHBoxLayout(self)
        row.setContentsMargins(10, 6, 6, 6)
        row.addWidget(self._label, 1)
        row.addWidget(undo)
        self._timer = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._timer.timeout.connect(self.hide)
        self.hide()

    def offer(self, conversation: Conversation) -> None:
        """A conversation was deleted."""
        self._deleted = conversation
        self._label.setText(f"Deleted “{conversation.title}”")
        self._timer.start()
        self.show()

    @Slot()
    def undo(self) -> None:
        """Bring it back."""
        self._timer.stop()
        self.hide()
        if self._deleted is not None:
            self._controller.restore(self._deleted)
            self._deleted = None


class ConversationList(QWidget):
    """New chat, search, and the list.

    Signals:
        begun: the user asked for a new chat and is going to type into it.
    """

    begun = Signal()

    def __init__(self, controller: ChatController, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._controller = controller
        self._new = QPushButton("+  New chat")
        self._new.setObjectName("primary")
        self._new.setAccessibleName("New chat")
        self._new.setToolTip("Begin a conversation (Ctrl+N)")
        self._search = QLineEdit()
        self._search.setPlaceholderText("Search  Ctrl+K")
        self._search.setAccessibleName("Search conversations")
        self._search.setToolTip("Search titles and messages (Ctrl+K)")
        self._search.setClearButtonEnabled(True)
        self._model = ConversationModel(controller, self)
        self._view = self._build_view()
        self._empty = QLabel()
        self._empty.setObjectName("secondary")
        self._empty.setTextFormat(Qt.TextFormat.PlainText)
        self._empty.setWordWrap(True)
        self._empty.setContentsMargins(PADDING_PX, 4, PADDING_PX, 4)
        self._undo = UndoBar(controller)
        self._search_timer = QTimer(self, singleShot=True, interval=SEARCH_DELAY_MS)
        self._lay_out()
        self._connect()
        self._show_state()

    @property
    def view(self) -> QListView:
        """The list itself."""
        return self._view

    @property
    def search_field(self) -> QLineEdit:
        """Where a search is typed."""
        return self._search

    @property
    def undo_bar(self) -> UndoBar:
        """What offers a deleted conversation back."""
        return self._undo

    def _build_view(self) -> QListView:
        view = QListView()
        view.setModel(self._model)
        view.setItemDelegate(ConversationDelegate(view))
        view.setAccessibleName("Conversations")
        view.setUniformItemSizes(True)
        view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.setSpacing(1)
        return view

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        for widget in (self._new, self._search, self._empty):
            column.addWidget(widget)
        column.addWidget(self._view, 1)
        column.addWidget(self._undo)

    def _connect(self) -> None:
        self._new.clicked.connect(self.begin)
        for keys in ("Ctrl+N", "Ctrl+Shift+O"):
            QShortcut(QKeySequence(keys), self).activated.connect(self.begin)
        QShortcut(QKeySequence("Ctrl+K"), self).activated.connect(self.focus_search)
        remove = QShortcut(QKeySequence(QKeySequence.StandardKey.Delete), self._view)
        remove.setContext(Qt.ShortcutContext.WidgetShortcut)
        remove.activated.connect(self.delete_current)
        leave = QShortcut(QKeySequence("Esc"), self._search)
        leave.setContext(Qt.ShortcutContext.WidgetShortcut)
        leave.activated.connect(self._search.clear)
        self._search.textChanged.connect(self._search_timer.start)
        self._search_timer.timeout.connect(self._apply_search)
        self._view.selectionModel().currentChanged.connect(self._on_current_changed)
        self._view.customContextMenuRequested.connect(self._show_menu)
        self._controller.selected.connect(self._show_selected)
        self._model.modelReset.connect(self._show_state)

    @Slot()
    def begin(self) -> None:
        """Ctrl+N."""
        self._controller.new_conversation()
        self.begun.emit()

    @Slot()
    def focus_search(self) -> None:
        """Ctrl+K."""
        self._search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._search.selectAll()

    @Slot()
    def rename_current(self) -> None:
        """Edit the title in place."""
        if self._view.currentIndex().isValid():
            self._view.edit(self._view.currentIndex())

    @Slot()
    def delete_current(self) -> None:
        """Delete, and offer to undo it."""
        index = self._view.currentIndex()
        if not index.isValid():
            return
        deleted = self._controller.delete(index.data(Role.ID))
        if deleted is not None:
            self._undo.offer(deleted)

    @Slot()
    def _apply_search(self) -> None:
        self._model.set_search(self._search.text())
        self._show_state()

    @Slot(QModelIndex, QModelIndex)
    def _on_current_changed(self, current: QModelIndex, _previous: QModelIndex) -> None:
        if current.isValid():
            self._controller.select(current.data(Role.ID))

    @Slot()
    def _show_selected(self) -> None:
        index = self._model.index_of(self._controller.current_id)
        selection = self._view.selectionModel()
        selection.blockSignals(True)  # what the controller says is not said back to it
        selection.setCurrentIndex(index, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if not index.isValid():
            selection.clear()
        selection.blockSignals(False)
        self._view.viewport().update()

    @Slot()
    def _show_state(self) -> None:
        self._show_selected()
        is_empty = self._model.rowCount() == 0
        self._empty.setVisible(is_empty)
        if sought := self._search.text().strip():
            self._empty.setText(f"Nothing found for “{_short(sought)}”.")
        else:
            kept = "are kept on this computer" if self._controller.is_saved else "last until KVScope is closed"
            self._empty.setText(f"No chats yet. They appear here and {kept}.")

    @Slot(QPoint)
    def _show_menu(self, position: QPoint) -> None:
        if not self._view.indexAt(position).isValid():
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        rename = menu.addAction("Rename")
        rename.setShortcut("F2")
        rename.triggered.connect(self.rename_current)
        remove = menu.addAction("Delete")
        remove.setShortcut("Del")
        remove.triggered.connect(self.delete_current)
        menu.popup(self._view.viewport().mapToGlobal(position))


def _short(text: str) -> str:
    """The beginning of what was typed, with places to break it so that the pane need not become wider."""
    words = " ".join(text.split())
    shown = words if len(words) <= SOUGHT_CHARS else f"{words[: SOUGHT_CHARS - 1].rstrip()}…"
    return LONG_WORD.sub(rf"\g<0>{BREAK_OPPORTUNITY}", shown)
