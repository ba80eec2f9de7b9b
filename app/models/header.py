"""The line above the chat: which model answers, how it runs, and the two menus."""

from PySide6.QtCore import Signal, Slot
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QSizePolicy, QToolButton, QWidget

from app.models.wording import describe_model
from app.widgets import ElidedLabel
from engine.events import EngineState, EngineStatus

NAMES = {EngineState.EMPTY: "No model", EngineState.LOADING: "Loading…", EngineState.FAILED: "No model"}


class ModelHeader(QWidget):
    """Shows the engine's status; the model button asks for the picker."""

    picker_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = ElidedLabel("No model")
        font = self._name.font()
        font.setBold(True)
        font.setPointSize(11)
        self._name.setFont(font)
        # As wide as its text, and the first to give way where there is no room.
        self._name.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self._description = ElidedLabel()
        self._description.setObjectName("secondary")
        self._model_button = QPushButton("Model…")
        self._model_button.setShortcut(QKeySequence("Ctrl+O"))
        self._model_button.setToolTip("Choose another model (Ctrl+O)")
        self._model_button.setAccessibleName("Choose a model")
        self._menu_button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self._menu_button.setText("☰")
        self._menu_button.setToolTip("Menu: view, theme, keys, about (F10)")
        self._menu_button.setAccessibleName("Menu")
        self._menu_button.setShortcut(QKeySequence("F10"))
        self._menu_button.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self._name)
        layout.addWidget(self._description, 1)
        layout.addWidget(self._model_button)
        layout.addWidget(self._menu_button)
        self._model_button.clicked.connect(self.picker_asked)

    def set_menu(self, menu: QMenu) -> None:
        """What the menu button opens."""
        self._menu_button.setMenu(menu)

    @Slot(object)
    def on_status(self, status: EngineStatus) -> None:
        """The engine's state has changed."""
        info = status.info
        self._name.setText(info.name if info is not None else NAMES.get(status.state, ""))
        self._description.setText(describe_model(info) if info is not None else "")
