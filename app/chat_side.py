"""The left and the middle of the window: history, controller and the two panes that show it."""

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

from app.bridge.engine_client import EngineClient
from app.chat.controller import ChatController
from app.chat.conversation_list import ConversationList
from app.chat.history import History, HistoryError
from app.chat.pane import ChatPane
from app.key_sheet import KeyRow
from app.paths import Paths
from app.settings import Settings
from app.theme import Theme
from app.window import MainWindow
from engine.requests import SamplingParams

NAME_CHARS = 18
KEYS = (
    KeyRow("Chat", "Enter", "Send"),
    KeyRow("Chat", "Shift+Enter", "Break the line"),
    KeyRow("Chat", "Esc", "Stop the answer, keep its text"),
    KeyRow("Chat", "Ctrl+Shift+C", "Copy the newest answer"),
    KeyRow("Chat", "Ctrl+End", "Go to the newest text and follow it"),
    KeyRow("Conversations", "Ctrl+N", "New chat"),
    KeyRow("Conversations", "Ctrl+K", "Search"),
    KeyRow("Conversations", "F2", "Rename"),
    KeyRow("Conversations", "Del", "Delete"),
    KeyRow("Dashboard", "Ctrl+Shift+F", "Free memory…"),
    KeyRow("Dashboard", "Ctrl+Shift+T", "Table of the processes"),
)


class ChatSide(QObject):
    """Conversations, kept when `is_saved`, else living as long as the window.

    Attributes:
        note: a sentence when the kept conversations could not be opened; empty otherwise.
    """

    def __init__(self, window: MainWindow, client: EngineClient, theme: Theme, paths: Paths, *, is_saved: bool) -> None:
        super().__init__(window)
        self._window = window
        self.history, self.note = _open_history(paths, is_saved=is_saved)
        self.controller = ChatController(client, self.history, self)
        self.pane = ChatPane(self.controller, theme)
        self.list = ConversationList(self.controller)
        self.list.begun.connect(self._go_to_prompt)
        self.controller.troubled.connect(window.notices.add)
        self._hidden_keys = [self._shortcut("Ctrl+N", self.list.begin), self._shortcut("Ctrl+K", self._search)]
        window.list_shown_changed.connect(self._on_list_shown)

    def put_into(self, *above: QWidget) -> None:
        """Fill the two panes; `above` comes over the chat."""
        self._window.set_list(self.list)
        self._window.set_chat(*above, self.pane)
        self._window.set_key_rows(KEYS)
        self.pane.setFocus()

    def name_of(self, request_id: str) -> str:
        """What people may call a request: its conversation's title, cut short; else its own id."""
        conversation_id = self.controller.conversation_of(request_id)
        title = self.controller.title(conversation_id) if conversation_id else request_id
        return title if len(title) <= NAME_CHARS else f"{title[: NAME_CHARS - 1].rstrip()}…"

    def use(self, settings: Settings) -> None:
        """Ask for answers like this from now on."""
        self.controller.system_prompt = settings.system_prompt
        self.controller.sampling = SamplingParams(
            temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.max_tokens
        )

    def refuse(self) -> None:
        """No new prompts."""
        self.pane.setEnabled(False)
        self.list.setEnabled(False)

    def close(self) -> None:
        """Write everything. The engine has ended before."""
        self.controller.close()

    def _shortcut(self, keys: str, slot: object) -> QShortcut:
        # The list's own keys sleep while it is hidden.
        shortcut = QShortcut(QKeySequence(keys), self._window)
        shortcut.activated.connect(slot)
        shortcut.setEnabled(not self._window.list_shown)
        return shortcut

    @Slot(bool)
    def _on_list_shown(self, shown: bool) -> None:
        for shortcut in self._hidden_keys:
            shortcut.setEnabled(not shown)

    @Slot()
    def _go_to_prompt(self) -> None:
        self.pane.setFocus()

    @Slot()
    def _search(self) -> None:
        self._window.show_list()
        self.list.focus_search()


def _open_history(paths: Paths, *, is_saved: bool) -> tuple[History, str]:
    if not is_saved:
        return History.unsaved(), ""
    try:
        return History.open(paths.database), ""
    except HistoryError as error:
        return History.unsaved(), f"{error} The conversations of this session will not be kept."
