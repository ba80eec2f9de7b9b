"""What this program is, and what it runs on."""

import platform

from PySide6.QtCore import Qt, Slot, qVersion
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QLabel, QPushButton, QVBoxLayout, QWidget

from app.close_row import close_row
from app.theme import SPACE_PX
from app.version import version_of

WORDS = (
    "A chat beside the paged-attention engine that answers it: memory by process, KV blocks and batching steps, as "
    "they really are. Everything runs on this machine."
)


def versions() -> str:
    """One line per part, for people who report a problem."""
    lines = [f"KVScope {version_of('kvscope')}", f"Python {platform.python_version()}", f"Qt {qVersion()}"]
    lines += [f"{name} {version_of(name)}" for name in ("PySide6_Essentials", "pyqtgraph", "torch")]
    return "\n".join([*lines, platform.platform()])


class AboutDialog(QDialog):
    """Name, purpose, licence, versions."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("About KVScope")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(420)
        title = QLabel("KVScope")
        font = title.font()
        font.setBold(True)
        font.setPointSize(11)
        title.setFont(font)
        words = QLabel(WORDS, wordWrap=True)
        licence = QLabel("Apache License 2.0")
        details = QLabel(versions())
        details.setObjectName("secondary")
        details.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        copy = QPushButton("Copy versions")
        copy.setToolTip("Copy the versions to the clipboard, for a report")
        copy.setAccessibleName("Copy versions")
        copy.clicked.connect(self._copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX)
        layout.setSpacing(SPACE_PX)
        for widget in (title, words, licence, details):
            layout.addWidget(widget)
        layout.addLayout(close_row(self, copy))

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(versions())
