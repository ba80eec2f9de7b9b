"""Shows what nobody caught, whichever thread it came from. The log has it already."""

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QDialog, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.close_row import close_row
from app.theme import SPACE_PX


class ErrorReporter(QObject):
    """Takes reports in any thread and shows them in the GUI thread, one dialog at a time.

    What arrives while a dialog is open is counted, not stacked: an error in a paint event comes sixty times a second.
    """

    _reported = Signal(str, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._window: QWidget | None = None
        self._dialog: ErrorDialog | None = None
        self._reported.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def set_window(self, window: QWidget) -> None:
        """Where dialogs belong."""
        self._window = window

    def report(self, message: str, details: str) -> None:
        """Show a sentence and its details. Any thread."""
        self._reported.emit(message, details)

    @Slot(str, str)
    def _show(self, message: str, details: str) -> None:
        if self._dialog is not None:
            self._dialog.count_another()
            return
        self._dialog = ErrorDialog(message, details, self._window)
        self._dialog.finished.connect(self._on_closed)
        self._dialog.open()

    @Slot()
    def _on_closed(self) -> None:
        dialog, self._dialog = self._dialog, None
        if dialog is not None:
            dialog.deleteLater()


class ErrorDialog(QDialog):
    """A sentence, the details on demand, and a way to copy them."""

    def __init__(self, message: str, details: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Something went wrong")
        self.resize(620, 320)
        self._details = details
        self._others = 0
        text = QLabel(f"{message}\nThe program goes on; the log has this too.", wordWrap=True)
        text.setTextFormat(Qt.TextFormat.PlainText)
        self._more = QLabel()
        self._more.setObjectName("secondary")
        self._more.hide()
        view = QPlainTextEdit(details, readOnly=True)
        view.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        view.setAccessibleName("Details")
        copy = QPushButton("Copy details")
        copy.setToolTip("Copy the whole text to the clipboard")
        copy.setAccessibleName("Copy details")
        copy.clicked.connect(self._copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX)
        layout.setSpacing(SPACE_PX)
        layout.addWidget(text)
        layout.addWidget(view, 1)
        layout.addLayout(close_row(self, self._more, copy))

    def count_another(self) -> None:
        """Say that more of the kind came in."""
        self._others += 1
        self._more.setText(f"{self._others} more since then, in the log")
        self._more.show()

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._details)
