"""The settings in force while the window is open: changed by the user, saved at once, told when they cannot be."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app.settings import Settings, load_settings, save_settings
from engine.config import EngineConfig


class Preferences(QObject):
    """Holds the settings and writes each change.

    Args:
        path: the settings file.
        is_saved: whether changes are written; else they hold until the window closes.

    Signals:
        troubled: a sentence for the user, once.
    """

    troubled = Signal(str)

    def __init__(self, path: Path, *, is_saved: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._is_saved = is_saved
        loaded = load_settings(path)
        self._settings = loaded.settings
        self.note = loaded.note

    @property
    def settings(self) -> Settings:
        """What holds now."""
        return self._settings

    def engine_config(self, model: str) -> EngineConfig:
        """How a model is to be loaded."""
        settings = self._settings
        return EngineConfig(
            model=model, dtype=settings.dtype, device=settings.device, threads=settings.threads, reserved_cores=1
        )

    def change(self, settings: Settings) -> None:
        """These hold from now on."""
        self._settings = settings
        if not self._is_saved:
            return
        try:
            save_settings(self._path, settings)
        except OSError as error:
            self._is_saved = False
            self.troubled.emit(f"The settings could not be saved ({error}); they hold until the window closes.")

    @Slot(str)
    def choose_theme(self, choice: str) -> None:
        """Remember the theme."""
        self.change(replace(self._settings, theme=choice))

    @Slot(str)
    def remember_model(self, path: str) -> None:
        """Remember what was loaded last."""
        self.change(replace(self._settings, last_model=path))

    @Slot()
    def decline_starter(self) -> None:
        """Remember that the starter is fetched only when it is asked for."""
        self.change(replace(self._settings, fetch_starter=False))
