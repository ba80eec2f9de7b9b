"""The line above the chat: which model answers or how far loading has come, and the two menus."""

from PySide6.QtCore import Signal, Slot
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QHBoxLayout,
    QMenu,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.models.wording import describe_model
from app.widgets import ElidedLabel
from engine.events import EngineState, EngineStatus, LoadProgress

BAR_PX = 3


class ModelHeader(QWidget):
    """Shows the engine's status; the model button asks for the picker, Cancel gives up loading."""

    picker_asked = Signal()
    cancel_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._wanted = "the model"
        self._name = ElidedLabel("No model")
        font = self._name.font()
        font.setBold(True)
        font.setPointSize(11)
        self._name.setFont(font)
        # As wide as its text, and the first to give way where there is no room.
        self._name.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self._description = ElidedLabel()
        self._description.setObjectName("secondary")
        self._cancel = QPushButton("Cancel")
        self._cancel.setToolTip("Give up loading this model")
        self._cancel.setAccessibleName("Cancel loading")
        self._cancel.hide()
        self._model_button = QPushButton("Model…")
        self._model_button.setShortcut(QKeySequence("Ctrl+O"))
        self._model_button.setToolTip("Choose another model (Ctrl+O)")
        self._model_button.setAccessibleName("Choose a model")
        self._menu_button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self._menu_button.setText("☰")
        self._menu_button.setToolTip("Menu: view, theme, settings, keys, about (F10)")
        self._menu_button.setAccessibleName("Menu")
        self._menu_button.setShortcut(QKeySequence("F10"))
        self._menu_button.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        self._bar = QProgressBar(maximum=1000, textVisible=False)
        self._bar.setAccessibleName("Loading")
        self._bar.setFixedHeight(BAR_PX)
        self._lay_out()
        self._show_loading(False)
        self._model_button.clicked.connect(self.picker_asked)
        self._cancel.clicked.connect(self.cancel_asked)

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self._name)
        row.addWidget(self._description, 1)
        for button in (self._cancel, self._model_button, self._menu_button):
            row.addWidget(button)
        # Its place is kept while it is hidden: nothing below moves when a model is ready.
        policy = self._bar.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._bar.setSizePolicy(policy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self._bar)

    def set_menu(self, menu: QMenu) -> None:
        """What the menu button opens."""
        self._menu_button.setMenu(menu)

    @Slot(str)
    def on_load_begun(self, name: str) -> None:
        """Which model the next status speaks of."""
        self._wanted = name

    @Slot(object)
    def on_status(self, status: EngineStatus) -> None:
        """The engine's state has changed."""
        info = status.info
        loading = status.state is EngineState.LOADING
        nothing = f"Loading {self._wanted}…" if loading else "No model"
        self._name.setText(info.name if info is not None else nothing)
        self._description.setText(describe_model(info) if info is not None else "")
        self._show_loading(loading)

    @Slot(object)
    def on_load_progress(self, progress: LoadProgress) -> None:
        """Loading goes on."""
        self._description.setText(f"{progress.fraction:.0%} · {progress.stage}")
        self._bar.setValue(round(progress.fraction * 1000))

    def _show_loading(self, loading: bool) -> None:
        self._bar.setVisible(loading)
        self._cancel.setVisible(loading)
        if not loading:
            self._bar.setValue(0)
