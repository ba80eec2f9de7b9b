"""The middle pane: the conversation in view and the composer. Only connects them with the controller."""

from collections.abc import Callable

from PySide6.QtCore import Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QMessageBox, QStackedWidget, QVBoxLayout, QWidget

from app.chat.composer import Composer
from app.chat.context_use import context_use
from app.chat.controller import ChatController
from app.chat.conversation import Role, Turn
from app.chat.empty_chat import EmptyChat
from app.chat.transcript import Transcript
from app.theme import Theme
from app.widgets import READABLE_MS, Pacer
from engine.events import EngineStatus


def _open_in_browser(address: str) -> None:
    QDesktopServices.openUrl(QUrl(address))


class ChatPane(QWidget):
    """Shows the controller's current conversation.

    Args:
        open_link: opens an address after the user has agreed.
    """

    def __init__(
        self,
        controller: ChatController,
        theme: Theme,
        parent: QWidget | None = None,
        *,
        open_link: Callable[[str], None] = _open_in_browser,
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._open_link = open_link
        self._asked_link = ""
        self.transcript = Transcript(theme)
        self.empty = EmptyChat()
        self.composer = Composer()
        self._context = Pacer(self._show_context, READABLE_MS, self)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.transcript)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(10)
        column.addWidget(self._stack, 1)
        column.addWidget(self.composer)
        self.setFocusProxy(self.composer)
        self._escape = self._shortcut("Esc", controller.stop)
        self._shortcut("Ctrl+Shift+C", self.copy_last_answer)
        self._connect()
        self.show_conversation()

    def _shortcut(self, keys: str, slot: Callable[[], None]) -> QShortcut:
        shortcut = QShortcut(QKeySequence(keys), self)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        shortcut.activated.connect(slot)
        return shortcut

    def _connect(self) -> None:
        controller = self._controller
        controller.selected.connect(self.show_conversation)
        controller.turn_added.connect(self._on_turn_added)
        controller.turn_changed.connect(self._on_turn_changed)
        controller.text_grew.connect(self._on_text_grew)
        controller.running_changed.connect(self._show_running)
        controller.status_changed.connect(self._on_status)
        self.transcript.retry_requested.connect(controller.retry)
        self.transcript.link_activated.connect(self._ask_about_link)
        self.empty.prompt_chosen.connect(self.send)
        self.composer.submitted.connect(self.send)
        self.composer.stop_requested.connect(controller.stop)
        self.composer.draft_changed.connect(self._on_draft_changed)

    @Slot()
    def show_conversation(self) -> None:
        """Bring the controller's current conversation into view."""
        conversation_id = self._controller.current_id
        turns = self._controller.turns(conversation_id)
        self.transcript.show_turns(turns)
        self._stack.setCurrentWidget(self.transcript if turns else self.empty)
        self.empty.show_status(self._controller.status)
        self.composer.set_text(self._controller.draft(conversation_id))
        self._show_running()
        self._show_context()
        self.composer.setFocus()

    @Slot(str)
    def send(self, text: str) -> None:
        """Send a prompt; the field is emptied only when it was taken."""
        if self._controller.send(text) and text == self.composer.text:
            self.composer.clear()

    @Slot()
    def copy_last_answer(self) -> None:
        """Put the source of the newest answer on the clipboard."""
        turns = self._controller.turns(self._controller.current_id)
        answer = next((turn for turn in reversed(turns) if turn.role is Role.ASSISTANT and turn.text), None)
        if answer is not None:
            QGuiApplication.clipboard().setText(answer.text)
            self.composer.show_hint("The answer was copied.")

    def _is_in_view(self, turn: Turn) -> bool:
        return turn.conversation_id == self._controller.current_id

    @Slot(object)
    def _on_turn_added(self, turn: Turn) -> None:
        if self._is_in_view(turn):
            self._stack.setCurrentWidget(self.transcript)
            self.transcript.add_turn(turn)
            self._show_context()

    @Slot(object)
    def _on_turn_changed(self, turn: Turn) -> None:
        if self._is_in_view(turn):
            self.transcript.update_turn(turn)
            self._show_context()

    @Slot(object, int)
    def _on_text_grew(self, turn: Turn, new_tokens: int) -> None:
        if self._is_in_view(turn):
            self.transcript.append_text(turn, new_tokens)
            self._context.ask()

    @Slot(str)
    def _on_draft_changed(self, text: str) -> None:
        self._controller.set_draft(self._controller.current_id, text)
        self._show_context()

    @Slot(object)
    def _on_status(self, status: EngineStatus) -> None:
        self.empty.show_status(status)
        self._show_context()

    @Slot()
    def _show_running(self) -> None:
        running = self._controller.is_running(self._controller.current_id)
        self.composer.set_running(running)
        self._escape.setEnabled(running)  # otherwise Esc is left to whoever else wants it

    def _show_context(self) -> None:
        turns = self._controller.turns(self._controller.current_id)
        info = self._controller.status.info
        use = context_use(
            turns,
            draft=self.composer.text,
            new_tokens=self._controller.new_tokens(turns[-1].id) if turns else 0,
            limit_tokens=info.max_model_len_tokens if info else None,
        )
        self.composer.set_context(use)

    @Slot(str)
    def _ask_about_link(self, address: str) -> None:
        """A model wrote this address: show all of it before anything is opened."""
        self._asked_link = address
        box = QMessageBox(self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setWindowTitle("Open link")
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText("Open this address in the browser?")
        box.setInformativeText(address)
        box.setStandardButtons(QMessageBox.StandardButton.Open | QMessageBox.StandardButton.Cancel)
        box.setDefaultButton(QMessageBox.StandardButton.Cancel)
        box.accepted.connect(self._open_asked_link)
        box.open()

    @Slot()
    def _open_asked_link(self) -> None:
        self._open_link(self._asked_link)
