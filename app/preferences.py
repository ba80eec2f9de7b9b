"""The settings in force while the window is open: changed by the user, saved at once, told when they cannot be."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from app.settings import Settings, load_settings, save_settings
from engine.config import EngineConfig, SchedulingPolicy


class Preferences(QObject):
    """Holds the settings and writes each change.

    Args:
        path: the settings file.
        is_saved: whether changes are written; else they hold until the window closes.
        given: settings of the command line, which win in this run and are not saved.

    Signals:
        troubled: a sentence for the user, once.
    """

    troubled = Signal(str)

    def __init__(
        self, path: Path, *, is_saved: bool, given: Mapping[str, Any] | None = None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._path = path
        self._is_saved = is_saved
        self._given = dict(given or {})
        loaded = load_settings(path)
        self._settings = loaded.settings
        self.note = loaded.note

    @property
    def settings(self) -> Settings:
        """What was chosen to last."""
        return self._settings

    @property
    def given(self) -> frozenset[str]:
        """Names of the settings that the command line has decided for this run."""
        return frozenset(self._given)

    @property
    def in_force(self) -> Settings:
        """What holds now."""
        return replace(self._settings, **self._given)

    def engine_config(self, model: str) -> EngineConfig:
        """How a model is to be loaded."""
        settings = self.in_force
        return EngineConfig(
            model=model,
            dtype=settings.dtype,
            device=settings.device,
            threads=settings.threads,
            reserved_cores=1,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            policy=SchedulingPolicy(settings.policy),
            max_chunk_tokens=settings.max_chunk_tokens,
            max_model_len=settings.max_model_len,
            kv_bytes=None if settings.kv_cache_mib is None else settings.kv_cache_mib * 2**20,
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
