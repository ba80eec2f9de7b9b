"""The main window: three panes, a notice above them, the status line below, and the keys of the whole window.

It arranges widgets that others bring, and knows nothing of what is in them.
"""

from collections.abc import Sequence

from PySide6.QtCore import QByteArray, QEvent, QSize, Qt, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup, QCloseEvent, QKeySequence, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QMainWindow, QMenu, QSplitter, QTabBar, QVBoxLayout, QWidget

from app.key_sheet import KeyRow, KeySheet
from app.notice import NoticeBar
from app.status_line import StatusLine
from app.theme import SPACE_PX

DEFAULT_SIZE = QSize(1440, 900)
MINIMUM_SIZE = QSize(640, 480)
NARROW_PX = 900  # at this width and below, chat and dashboard take turns
LIST_PX = 200
LIST_SHARE = 15  # of the width, in percent
CHAT_SHARE = 52  # of what is left
PANE_MINIMUMS_PX = (140, 320, 320)


class MainWindow(QMainWindow):
    """Conversation list | chat | dashboard.

    Signals:
        painted: the window is on the screen for the first time.
        close_asked: the user wants to leave; the window stays until it is closed by `finish`.
        theme_chosen: "system", "light" or "dark".
        settings_asked: the settings are to be shown.
        dashboard_seen_changed: whether anybody can see the dashboard.
        list_shown_changed: whether the conversation list is open.
    """

    painted = Signal()
    close_asked = Signal()
    theme_chosen = Signal(str)
    settings_asked = Signal()
    dashboard_seen_changed = Signal(bool)
    list_shown_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("KVScope")
        self.setMinimumSize(MINIMUM_SIZE)
        self._is_finished = False
        self._was_painted = False
        self._dashboard_wanted = True
        self._dashboard_seen = False
        self._saved_sizes: list[int] = []
        self.notices = NoticeBar()
        self.status_line = StatusLine()
        self._tabs = QTabBar(expanding=False, drawBase=False)
        self._tabs.setAccessibleName("Chat or dashboard")
        self._tabs.addTab("Chat")
        self._tabs.addTab("Dashboard")
        self._panes = QSplitter(Qt.Orientation.Horizontal)
        self._panes.setHandleWidth(SPACE_PX)
        self._contents = tuple(_pane(name) for name in ("Conversations", "Chat", "Dashboard"))
        for number, pane in enumerate(self._contents):
            pane.setMinimumWidth(PANE_MINIMUMS_PX[number])
            self._panes.addWidget(pane)
            self._panes.setStretchFactor(number, 1 if number else 0)
        self._lay_out()
        self.set_dashboard(_placeholder("The graphs come as soon as the window is up."))
        self._key_rows: tuple[KeyRow, ...] = ()
        self.menu = self._build_menu()
        self._tabs.currentChanged.connect(self._show_panes)
        self._panes.splitterMoved.connect(self._remember_sizes)
        self.resize(DEFAULT_SIZE)
        self._show_panes()

    # What others bring

    def set_list(self, widget: QWidget) -> None:
        """The left pane."""
        self._fill(0, widget)

    def set_chat(self, *widgets: QWidget) -> None:
        """The middle pane, from top to bottom; the last one takes the room."""
        self._fill(1, *widgets)

    def set_dashboard(self, widget: QWidget) -> None:
        """The right pane."""
        self._fill(2, widget)

    def set_key_rows(self, rows: Sequence[KeyRow]) -> None:
        """Keys of the widgets inside, for the key sheet."""
        self._key_rows = tuple(rows)

    # What is remembered

    @property
    def geometry_text(self) -> str:
        """Place and size, for `restore`."""
        return bytes(self.saveGeometry().toBase64().data()).decode()

    @property
    def pane_sizes_px(self) -> tuple[int, ...]:
        """Widths of the panes when all are open; empty if never changed."""
        return tuple(self._saved_sizes)

    @property
    def dashboard_seen(self) -> bool:
        """Whether anybody can see the dashboard now."""
        return self._dashboard_seen

    @property
    def list_shown(self) -> bool:
        """Whether the conversation list is open."""
        return self._list_action.isChecked()

    @property
    def dashboard_shown(self) -> bool:
        """Whether the dashboard is open when there is room for it."""
        return self._dashboard_wanted

    def restore(self, *, geometry: str, sizes_px: Sequence[int], list_shown: bool, dashboard_shown: bool) -> None:
        """Look as it did last time."""
        if geometry:
            self.restoreGeometry(QByteArray.fromBase64(geometry.encode()))
        if len(sizes_px) == len(PANE_MINIMUMS_PX) and all(sizes_px):
            self._saved_sizes = list(sizes_px)
        self._dashboard_wanted = dashboard_shown
        self._list_action.setChecked(list_shown)
        self._show_panes()

    # Actions

    @Slot()
    def toggle_dashboard(self) -> None:
        """F9: show or hide it; in a narrow window turn to it or back."""
        if self._is_narrow:
            self._tabs.setCurrentIndex(1 - self._tabs.currentIndex())
        else:
            self._dashboard_wanted = not self._dashboard_wanted
            self._show_panes()

    def show_list(self) -> None:
        """Open the conversation list."""
        self._list_action.setChecked(True)
        self._show_panes()

    @Slot()
    def show_keys(self) -> None:
        """Ctrl+/: all keys."""
        sheet = KeySheet((*self._own_key_rows(), *self._key_rows), self)
        sheet.open()

    @Slot()
    def show_about(self) -> None:
        """What this is."""
        from app.about import AboutDialog

        AboutDialog(self).open()

    def set_theme_choice(self, choice: str) -> None:
        """Mark the theme in force in the menu."""
        for action in self._theme_group.actions():
            action.setChecked(action.data() == choice)

    def finish(self) -> None:
        """Close for good."""
        self._is_finished = True
        self.close()

    # Qt's events

    def event(self, event: QEvent) -> bool:
        """Notice the first paint."""
        handled = super().event(event)
        if event.type() == QEvent.Type.Paint and not self._was_painted:
            self._was_painted = True
            self.painted.emit()
        return handled

    def showEvent(self, event: QShowEvent) -> None:
        """Share the width out as soon as it is known."""
        super().showEvent(event)
        self._apply_sizes()
        self._tell_whether_seen()

    def changeEvent(self, event: QEvent) -> None:
        """Notice being minimised."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self._tell_whether_seen()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Change between three panes and tabs."""
        super().resizeEvent(event)
        self._show_panes()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Ask, and stay until everything has ended."""
        if self._is_finished:
            event.accept()
            return
        event.ignore()
        self.close_asked.emit()

    # Layout

    @property
    def _is_narrow(self) -> bool:
        return self.width() <= NARROW_PX

    @Slot()
    def _show_panes(self) -> None:
        narrow = self._is_narrow
        if self._tabs.isVisibleTo(self) != narrow:
            self._tabs.setVisible(narrow)
        on_dashboard = narrow and self._tabs.currentIndex() == 1
        shown = (
            self._list_action.isChecked(),
            not on_dashboard,
            on_dashboard if narrow else self._dashboard_wanted,
        )
        before = tuple(pane.isVisibleTo(self._panes) for pane in self._contents)
        for pane, visible in zip(self._contents, shown, strict=True):
            pane.setVisible(visible)
        self._dashboard_action.setChecked(shown[2])
        if shown != before:
            self._apply_sizes()
        self._tell_whether_seen()

    def _tell_whether_seen(self) -> None:
        seen = self._contents[2].isVisible() and not self.isMinimized()
        if seen != self._dashboard_seen:
            self._dashboard_seen = seen
            self.dashboard_seen_changed.emit(seen)

    def _apply_sizes(self) -> None:
        if self._saved_sizes:
            self._panes.setSizes(self._saved_sizes)
            return
        width = self._panes.width()
        left = max(LIST_PX, width * LIST_SHARE // 100)
        chat = (width - left) * CHAT_SHARE // 100
        self._panes.setSizes([left, chat, width - left - chat])

    @Slot()
    def _remember_sizes(self) -> None:
        if all(pane.isVisible() for pane in self._contents):
            self._saved_sizes = self._panes.sizes()

    def _fill(self, number: int, *widgets: QWidget) -> None:
        layout = self._contents[number].layout()
        assert isinstance(layout, QVBoxLayout)
        while (item := layout.takeAt(0)) is not None:
            old = item.widget()
            if old is not None:
                old.deleteLater()
        for widget in widgets:
            layout.addWidget(widget, 1 if widget is widgets[-1] else 0)

    def _lay_out(self) -> None:
        central = QWidget()
        layout = QVBoxLayout(central)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX // 2)
        layout.setSpacing(8)
        layout.addWidget(self.notices)
        layout.addWidget(self._tabs)
        layout.addWidget(self._panes, 1)
        layout.addWidget(self.status_line)
        self.setCentralWidget(central)

    # Menu and keys

    def _build_menu(self) -> QMenu:
        menu = QMenu(self)
        self._list_action = self._action("Conversations", "Ctrl+B", self._show_panes, checkable=True)
        self._list_action.setChecked(True)
        self._list_action.toggled.connect(self.list_shown_changed)
        self._dashboard_action = self._action("Dashboard", "F9", self.toggle_dashboard, checkable=True)
        menu.addActions([self._list_action, self._dashboard_action])
        menu.addSeparator()
        menu.addMenu(self._theme_menu())
        menu.addAction(self._action("Settings…", "Ctrl+,", self.settings_asked))
        menu.addSeparator()
        menu.addAction(self._action("Keys", "Ctrl+/", self.show_keys))
        menu.addAction(self._action("About KVScope", "", self.show_about))
        menu.addSeparator()
        menu.addAction(self._action("Quit", "Ctrl+Q", self.close))
        return menu

    def _theme_menu(self) -> QMenu:
        menu = QMenu("Theme", self)
        self._theme_group = QActionGroup(self)
        for choice, text in (("system", "Like the system"), ("light", "Light"), ("dark", "Dark")):
            action = QAction(text, self, checkable=True)
            action.setData(choice)
            self._theme_group.addAction(action)
            menu.addAction(action)
        self._theme_group.triggered.connect(self._on_theme)
        return menu

    def _action(self, text: str, keys: str, slot: object, *, checkable: bool = False) -> QAction:
        action = QAction(text, self, checkable=checkable)
        if keys:
            action.setShortcut(QKeySequence(keys))
        action.triggered.connect(slot)
        self.addAction(action)
        return action

    @Slot(QAction)
    def _on_theme(self, action: QAction) -> None:
        self.theme_chosen.emit(action.data())

    def _own_key_rows(self) -> tuple[KeyRow, ...]:
        own = [action for action in self.actions() if not action.shortcut().isEmpty()]
        rows = [KeyRow("Window", action.shortcut().toString(), action.text()) for action in own]
        rows += [KeyRow("Window", "F10", "Menu"), KeyRow("Window", "Ctrl+O", "Choose a model")]
        return tuple(rows)


def _pane(name: str) -> QWidget:
    pane = QWidget()
    pane.setAccessibleName(name)
    layout = QVBoxLayout(pane)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(SPACE_PX)
    return pane


def _placeholder(text: str) -> QLabel:
    label = QLabel(text, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
    label.setObjectName("secondary")
    return label
