"""Decides which model is loaded, and keeps banner and engine in step. The only one here that knows the client.

A choice goes one way: picker, banner, command line or last time -> `load`. What became of it comes back as the
engine's status.
"""

import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QFileDialog

from app.bridge.engine_client import EngineClient
from app.models.banner import ModelBanner
from app.models.load_record import FailedLoad, LoadRecord
from app.models.picker import ModelPicker
from app.models.starter_fetch import Fetch, StarterFetch
from engine.catalog.fetch import FetchProgress
from engine.catalog.local import ModelFolders, list_models
from engine.catalog.starter import fetch_starter, starter_path
from engine.config import EngineConfig
from engine.events import EngineState, EngineStatus
from engine.model_names import display_name

Configure = Callable[[str], EngineConfig]
"""Makes the engine's configuration for a model's path from the settings in force."""


class WithoutModel(Enum):
    """What to do at the start when there is no model."""

    FETCH = auto()  # the starter, by itself
    ASK = auto()


class ModelController(QObject):
    """Loads, fetches and unloads.

    Signals:
        starter_declined: the user has cancelled a fetch of the starter, or chosen another model meanwhile.
        load_begun: name of a model that is going to be loaded.
        model_ready: path of a model that has just been loaded: worth remembering.
        settled: a load, a fetch or the decision to do neither has come to its end.
        noted: a sentence about a load that went wrong before, while another model is loaded now.
    """

    starter_declined = Signal()
    load_begun = Signal(str)
    model_ready = Signal(str)
    settled = Signal()
    noted = Signal(str)

    def __init__(
        self,
        client: EngineClient,
        banner: ModelBanner,
        folders: ModelFolders,
        configure: Configure,
        record: LoadRecord,
        *,
        fetch: Fetch = fetch_starter,
    ) -> None:
        super().__init__(banner)
        self._client = client
        self._banner = banner
        self._folders = folders
        self._configure = configure
        self._record = record
        self._fetch_starter = fetch
        self._fetch: StarterFetch | None = None
        self._is_declined = False  # the fetch under way: whatever it still says is of no interest
        self._is_cancelled = False  # and nothing else was chosen instead
        self._stage = ("", 0.0)  # of the fetch, and when it began
        self._wanted: Path | None = None
        self._is_loading = False
        self._closing = False
        client.status_changed.connect(self.on_status)
        banner.download_asked.connect(self.download_starter)
        banner.file_asked.connect(self.open_file)
        banner.folder_asked.connect(self.open_folder)
        banner.cancel_asked.connect(self.cancel)
        banner.again_asked.connect(self.load_again)

    @property
    def is_running(self) -> bool:
        """Whether a fetch has not ended."""
        return self._fetch is not None

    @property
    def current(self) -> Path | None:
        """What is loaded."""
        return self._wanted if self._client.status.state is EngineState.READY else None

    def start(self, chosen: Path | None, last: str, without_model: WithoutModel) -> None:
        """At the program's start: the command line's model, else the last one, else the starter, else as told.

        What could not be loaded the last time is loaded only when the command line asks for it.
        """
        starter = starter_path(self._folders.cache)
        self._banner.set_has_starter(starter is not None)
        candidates = (chosen, Path(last) if last else None, starter)
        model = next((path for path in candidates if path is not None and path.exists()), None)
        failed = self._record.read()
        if model is not None and model != chosen and failed is not None and _is_same(model, failed.model):
            self._show_not_loaded(failed)
        elif model is not None:
            if failed is not None and not _is_same(model, failed.model):
                self.noted.emit(f"{display_name(failed.model)} was not loaded again. {failed.reason}")
            self.load(model)
        elif without_model is WithoutModel.FETCH:
            self.download_starter()
        else:
            self.settled.emit()

    def _show_not_loaded(self, failed: FailedLoad) -> None:
        self._wanted = failed.model
        text = f"It could not be loaded the last time, so KVScope opened without it. {failed.reason}"
        self._banner.show_failure(f"{self._name} was not loaded", text, "", again=True)
        self.settled.emit()

    def load(self, path: Path) -> None:
        """Load a model instead of whatever there is or is being fetched."""
        self._decline_fetch()
        self._is_cancelled = False
        self._load(path)

    @property
    def can_load_again(self) -> bool:
        """Whether there is a model to load again."""
        return self._wanted is not None and not self._closing

    @Slot()
    def load_again(self) -> None:
        """Load the model once more that is loaded, or that could not be."""
        if self._wanted is not None:
            self.load(self._wanted)

    def _load(self, path: Path) -> None:
        self._wanted = path
        self._record.begin(path)
        self.load_begun.emit(self._name)
        self._client.load_model(self._configure(str(path)))

    def stop(self) -> None:
        """Begin nothing new and give up fetching; `is_running` tells when it has ended."""
        self._closing = True
        if self._is_loading:
            # The user ends the program: however late this load gives up, nothing was wrong with the model.
            self._record.clear()
        if self._fetch is not None:
            self._fetch.stop()

    @Slot(str)
    def load_path(self, path: str) -> None:
        """Load what a dialog has chosen."""
        self.load(Path(path))

    @Slot()
    def download_starter(self) -> None:
        """Fetch the starter and load it; one that is here is loaded at once."""
        present = starter_path(self._folders.cache)
        if present is not None:
            self.load(present)
        elif self._fetch is None and not self._closing:
            self._is_declined = self._is_cancelled = False
            self._banner.show_fetching(FetchProgress("Connecting"), 0.0)
            self._fetch = StarterFetch(self._folders.cache, self._fetch_starter, self)
            self._fetch.progressed.connect(self._on_fetch_progress)
            self._fetch.fetched.connect(self._on_fetched)
            self._fetch.failed.connect(self._on_fetch_failed)
            self._fetch.finished.connect(self._on_fetch_ended)
            self._fetch.start()

    @Slot()
    def cancel(self) -> None:
        """Give up what is under way."""
        if self._fetch is not None and not self._is_declined:
            self._decline_fetch()
            self._is_cancelled = True
            self._banner.show_fetching(FetchProgress("Cancelling"), 0.0)
        elif not self._is_cancelled:
            self._client.unload_model()

    def _decline_fetch(self) -> None:
        if self._fetch is not None and not self._is_declined:
            self._is_declined = True
            self._fetch.stop()
            self.starter_declined.emit()

    def _show_cancelled(self) -> None:
        """Go back to what there was before."""
        if self._client.status.state is EngineState.READY:
            self._banner.hide()
        else:
            self._banner.show_welcome()
        self.settled.emit()

    @Slot()
    def unload(self) -> None:
        """Give the model's memory back."""
        self._client.unload_model()

    @Slot()
    def open_file(self) -> None:
        """Ask for a GGUF file."""
        dialog = self._file_dialog("Open a GGUF file", QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(["GGUF models (*.gguf)", "All files (*)"])
        dialog.open()

    @Slot()
    def open_folder(self) -> None:
        """Ask for a folder with safetensors."""
        dialog = self._file_dialog("Open a model folder", QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.open()

    @Slot()
    def open_picker(self) -> None:
        """Show what is on this machine."""
        picker = ModelPicker(
            list_models(self._folders),
            current=self.current,
            models_folder=self._folders.models,
            parent=self._banner.window(),
        )
        picker.model_chosen.connect(self.load_path)
        picker.download_asked.connect(self.download_starter)
        picker.file_asked.connect(self.open_file)
        picker.folder_asked.connect(self.open_folder)
        picker.unload_asked.connect(self.unload)
        picker.finished.connect(picker.deleteLater)
        picker.open()

    def _file_dialog(self, title: str, mode: QFileDialog.FileMode) -> QFileDialog:
        dialog = QFileDialog(self._banner.window(), title)
        dialog.setFileMode(mode)
        dialog.fileSelected.connect(self.load_path)
        dialog.finished.connect(dialog.deleteLater)
        return dialog

    @Slot(object)
    def on_status(self, status: EngineStatus) -> None:
        """Show what became of a load."""
        was_loading, self._is_loading = self._is_loading, status.state is EngineState.LOADING
        match status.state:
            case EngineState.READY:
                self._record.clear()
                self._banner.hide()
                if self._wanted is not None:
                    self.model_ready.emit(str(self._wanted))
            case EngineState.LOADING:
                if self._wanted is not None and not self._closing:
                    # Once more: the end of a load that this one has replaced may have cleared it.
                    self._record.begin(self._wanted)
                self._banner.hide()
                return
            case EngineState.FAILED:
                self._show_failed(status, was_loading=was_loading)
            case EngineState.EMPTY:
                self._record.clear()
                self._banner.show_welcome()
        self.settled.emit()

    def _show_failed(self, status: EngineStatus, *, was_loading: bool) -> None:
        """A model that could not be loaded, or an engine that broke while it ran: only the first is remembered."""
        if was_loading and self._wanted is not None:
            self._record.fail(self._wanted, status.message)
        title = f"{self._name} cannot be used" if was_loading else f"{self._name} has stopped"
        self._banner.show_failure(title, status.message, status.details, again=self.can_load_again)

    @property
    def _name(self) -> str:
        return display_name(self._wanted) if self._wanted is not None else "The model"

    @Slot(object)
    def _on_fetch_progress(self, progress: FetchProgress) -> None:
        if self._is_declined:
            return
        if self._stage[0] != progress.stage:
            self._stage = (progress.stage, time.monotonic())
        self._banner.show_fetching(progress, time.monotonic() - self._stage[1])

    @Slot(str)
    def _on_fetched(self, path: str) -> None:
        self._banner.set_has_starter(True)
        if not self._closing and not self._is_declined:
            self._load(Path(path))

    @Slot(str, str)
    def _on_fetch_failed(self, message: str, details: str) -> None:
        if not self._is_declined:
            self._banner.show_failure("The starter model is not here", message, details, again=False)
            self.settled.emit()

    @Slot()
    def _on_fetch_ended(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            fetch.wait()
            fetch.deleteLater()
        if self._is_cancelled:
            self._is_cancelled = False
            self._show_cancelled()


def _is_same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute()
