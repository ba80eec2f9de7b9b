"""What must be known, and may be refused, before anything is built."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.trace.scenarios import Scenario
from PySide6.QtWidgets import QApplication

from app.icon import window_icon
from app.instance import Instance
from app.options import WindowOptions
from app.paths import Paths, user_paths
from app.scenario import CHAT
from app.storage import why_not_writable
from engine.catalog.local import ModelFolders, check_header, hf_hub_folder, resolve
from engine.errors import EngineError, UsageError


class DisplayError(EngineError):
    """There is nowhere to open a window."""

    def __init__(self) -> None:
        super().__init__(
            "There is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set). Use `kvscope chat` in this "
            "terminal, or start KVScope on a desktop."
        )


class AlreadyOpenError(EngineError):
    """Another process works with the data folder and cannot be asked for help."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"KVScope is open already with the data folder {folder} and cannot take this over. "
            "Close that window, or give another folder with --data-dir."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A window that may be opened.

    Attributes:
        instance: the claim on the data folder.
        chosen: the model of the command line.
        scenario: what is played once a model is ready, when it needs an engine of its own.
        why_unsaved: why nothing can be kept; empty when it can.
    """

    application: QApplication
    instance: Instance
    options: WindowOptions
    paths: Paths
    folders: ModelFolders
    chosen: Path | None
    scenario: "Scenario | None"
    why_unsaved: str


def prepare(options: WindowOptions) -> Opening | None:
    """Check everything; None when a window with this data folder is open and was brought to the front.

    Raises:
        EngineError: the window cannot be opened as asked.
    """
    paths = user_paths(options.data_dir)
    folders = ModelFolders(cache=paths.cache, models=paths.data / "models", hf_hub=hf_hub_folder())
    chosen = resolve(options.model, folders) if options.model else None
    if chosen is not None:
        check_header(chosen)
    play = _scenario(options.scenario)
    application = _application(options)
    why_unsaved = why_not_writable(paths.data)
    instance = Instance(paths.data)
    if not instance.claim():
        if options.screenshot is not None or not instance.raise_other():
            raise AlreadyOpenError(paths.data)
        return None
    instance.listen()
    return Opening(
        application=application, instance=instance, options=options, paths=paths, folders=folders, chosen=chosen,
        scenario=play, why_unsaved=why_unsaved,
    )  # fmt: skip


def _scenario(name: str) -> "Scenario | None":
    """The engine's scenario of that name; None for none and for the chat's own, which needs no special engine."""
    if name in {"", CHAT}:
        return None
    from engine.trace.scenarios import scenario

    try:
        return scenario(name)
    except UsageError as error:
        raise UsageError(f"There is no scenario called {name!r}; choose {CHAT}, slots or seed.") from error


def _application(options: WindowOptions) -> QApplication:
    _choose_platform(options)
    application = QApplication.instance() or QApplication([sys.argv[0]])
    assert isinstance(application, QApplication)
    application.setApplicationName("KVScope")
    application.setDesktopFileName("kvscope")
    application.setWindowIcon(window_icon())
    application.setQuitOnLastWindowClosed(False)
    return application


def _choose_platform(options: WindowOptions) -> None:
    if any(os.environ.get(name) for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY")):
        return
    if options.screenshot is None:
        raise DisplayError
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
