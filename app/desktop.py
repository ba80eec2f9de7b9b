"""Builds the window and everything beside it, and makes every connection that crosses packages.

The order is the point: what the first paint needs comes first, the graphs (pyqtgraph) after it, the model (torch, in
the engine's thread) last.
"""

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QApplication, QWidget

from app.bridge.engine_client import EngineClient
from app.connections import connect_dashboard, connect_models, connect_status_line
from app.error_dialog import ErrorReporter
from app.icon import window_icon
from app.instance import Instance
from app.logs import ExceptionHooks, Logs, log_qt_messages
from app.models.banner import ModelBanner
from app.models.controller import ModelController
from app.models.header import ModelHeader
from app.models.starter_fetch import Fetch
from app.options import WindowOptions
from app.paths import Paths, user_paths
from app.screenshot import Screenshot
from app.settings import Settings, load_settings, save_settings
from app.shutdown import Shutdown, SignalWatcher, Worker
from app.start_trace import StartTrace
from app.storage import why_not_writable
from app.theme import Theme
from app.window import MainWindow
from engine.catalog.local import ModelFolders, hf_hub_folder, resolve
from engine.catalog.starter import fetch_starter
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.events import EngineState, EngineStatus
from engine.loop import EngineFactory

if TYPE_CHECKING:  # what reads the memory is not needed for the first paint
    from app.monitor.sampler_thread import SamplerThread


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
    """What is known before anything is built.

    Attributes:
        chosen: the model of the command line.
        why_unsaved: why nothing can be kept; empty when it can.
    """

    options: WindowOptions
    paths: Paths
    folders: ModelFolders
    chosen: Path | None
    why_unsaved: str


def run(options: WindowOptions) -> int:
    """Show the window until it is closed; returns the exit code.

    Raises:
        EngineError: the window cannot be opened as asked.
    """
    desktop = open_desktop(options)
    if desktop is not None:
        return desktop.execute()
    rest = " The model given here was not loaded: choose it there." if options.model else ""
    sys.stdout.write(f"KVScope is open already with this data folder; its window was brought to the front.{rest}\n")
    return 0


def open_desktop(
    options: WindowOptions, *, load_engine: EngineFactory | None = None, fetch: Fetch = fetch_starter
) -> "Desktop | None":
    """Build everything, show nothing; None when a window with this data folder is open and was brought to the front.

    Args:
        options: what was asked on the command line.
        load_engine: what loads a model; None takes the real engine.
        fetch: what fetches the starter.

    Raises:
        EngineError: the window cannot be opened as asked.
    """
    paths = user_paths(options.data_dir)
    folders = ModelFolders(cache=paths.cache, models=paths.data / "models", hf_hub=hf_hub_folder())
    chosen = resolve(options.model, folders) if options.model else None
    application = _application(options)
    why_unsaved = why_not_writable(paths.data)
    instance = Instance(paths.data)
    if not instance.claim():
        if options.screenshot is not None or not instance.raise_other():
            raise AlreadyOpenError(paths.data)
        return None
    instance.listen()
    opening = Opening(options=options, paths=paths, folders=folders, chosen=chosen, why_unsaved=why_unsaved)
    return Desktop(application, instance, opening, load_engine, fetch)


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


class Desktop(QObject):
    """The running program."""

    def __init__(
        self,
        application: QApplication,
        instance: Instance,
        opening: Opening,
        load_engine: EngineFactory | None,
        fetch: Fetch,
    ) -> None:
        super().__init__()
        self._application = application
        self._instance = instance
        self._chosen = opening.chosen
        self._options = options = opening.options
        self._paths = paths = opening.paths
        self._is_saved = not opening.why_unsaved
        instance.raise_asked.connect(self.raise_window)
        self._trace = StartTrace()
        self._exit_code = 0
        self._has_ended = True
        self._logs = Logs(paths.log_file)
        self._reporter = ErrorReporter(self)
        self._hooks = ExceptionHooks(self._reporter.report)
        self._undo_messages = log_qt_messages(self._reporter.report)
        loaded = load_settings(paths.settings_file)
        self._settings = loaded.settings
        self._theme = Theme(application, options.theme or self._settings.theme)
        self.client = EngineClient(self, load_engine=load_engine)
        self.window = MainWindow()
        self._reporter.set_window(self.window)
        self._header = ModelHeader()
        self._banner = ModelBanner()
        self.sampler: SamplerThread | None = None
        self.models = ModelController(self.client, self._banner, opening.folders, self._configure, fetch=fetch)
        self._screenshot = self._prepare_screenshot()
        self._build_window()
        connect_models(self._header, self.models, self.client)
        connect_status_line(self.window.status_line, self.client)
        self.client.status_changed.connect(self._on_status)
        self.models.model_ready.connect(self._remember_model)
        self._shutdown = self._prepare_shutdown()
        self.window.notices.add(loaded.note)
        if opening.why_unsaved:
            self.window.notices.add(
                f"The data folder {paths.data} cannot be written ({opening.why_unsaved}): conversations and settings "
                "of this session will not be kept."
            )

    def execute(self) -> int:
        """Show the window until all has ended; returns the exit code."""
        signals = SignalWatcher(self)
        signals.arrived.connect(self._shutdown.begin)
        self._hooks.install()
        self.window.show()
        self._application.exec()
        self._hooks.remove()
        self._undo_messages()
        signals.close()
        self._logs.close()
        self._instance.release()
        if not self._has_ended:
            # A thread that does not end cannot be destroyed; everything is saved, so leave without destructors.
            sys.stderr.flush()
            os._exit(self._exit_code or 1)
        self.window.deleteLater()
        return self._exit_code

    @Slot()
    def raise_window(self) -> None:
        """Come to the front."""
        self.window.setWindowState(self.window.windowState() & ~self.window.windowState().WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    # Building

    def _build_window(self) -> None:
        window = self.window
        window.set_list(QWidget())
        window.set_chat(self._header, self._banner, QWidget())
        self._header.set_menu(window.menu)
        window.set_theme_choice(self._options.theme or self._settings.theme)
        window.theme_chosen.connect(self._choose_theme)
        window.painted.connect(self._on_painted)
        if self._screenshot is None:
            settings = self._settings
            window.restore(
                geometry=settings.window_geometry,
                sizes_px=settings.pane_sizes_px,
                list_shown=settings.list_shown,
                dashboard_shown=settings.dashboard_shown,
            )

    def _prepare_shutdown(self) -> Shutdown:
        client, models = self.client, self.models
        shutdown = Shutdown(
            refuse=self._refuse,
            workers=[
                Worker(
                    "the sampler", self._stop_sampler, lambda: self.sampler is not None and self.sampler.isRunning()
                ),
                Worker("the download", models.stop, lambda: models.is_running),
                Worker("the engine", client.stop, lambda: client.is_running),
            ],
            save=self._save,
            parent=self,
        )
        self.window.close_asked.connect(shutdown.begin)
        shutdown.ended.connect(self._on_ended)
        return shutdown

    def _prepare_screenshot(self) -> Screenshot | None:
        path = self._options.screenshot
        if path is None:
            return None
        screenshot = Screenshot(self.window, path, ("the graphs", "the memory", "the model"), self)
        screenshot.taken.connect(self._on_screenshot)
        self.models.settled.connect(self._on_settled)
        return screenshot

    # The start, stage by stage

    @Slot()
    def _on_painted(self) -> None:
        self._trace.note("first paint")
        QTimer.singleShot(0, self, self._build_dashboard)

    @Slot()
    def _build_dashboard(self) -> None:
        if self._shutdown.has_begun:
            return
        from app.monitor.panel import Dashboard  # pyqtgraph and numpy come with it

        dashboard = Dashboard(self._theme)
        sampler = self._build_sampler()
        connect_dashboard(dashboard, sampler, self.client, self.window)
        self.window.set_dashboard(dashboard)
        self.client.set_watched(self.window.dashboard_seen)
        sampler.start_sampling()
        self._trace.note("dashboard ready")
        self._note("the graphs")
        self.models.start(self._chosen, self._settings.last_model)

    def _build_sampler(self) -> "SamplerThread":
        from app.gpu.journal import ReleaseJournal
        from app.gpu.release import Release
        from app.monitor.sampler_thread import SamplerThread

        journal = ReleaseJournal.in_folder(self._paths.data) if self._is_saved else None
        sampler = SamplerThread(open_release=partial(Release, journal=journal), parent=self)
        sampler.sampled.connect(self._on_first_look)
        sampler.failed.connect(self._on_first_look)
        self.window.dashboard_seen_changed.connect(self._set_pace)
        self.sampler = sampler
        return sampler

    @Slot(bool)
    def _set_pace(self, seen: bool) -> None:
        from app.monitor.sampler import Pace

        if self.sampler is not None:
            self.sampler.set_pace(Pace.NORMAL if seen else Pace.HIDDEN)

    @Slot()
    def _on_first_look(self) -> None:
        self._note("the memory")

    @Slot()
    def _on_settled(self) -> None:
        self._note("the model")

    @Slot(object)
    def _on_status(self, status: EngineStatus) -> None:
        if status.state is EngineState.READY:
            self._trace.note("model ready")

    def _note(self, event: str) -> None:
        if self._screenshot is not None:
            self._screenshot.note(event)

    # Settings

    def _configure(self, model: str) -> EngineConfig:
        settings = self._settings
        return EngineConfig(model=model, dtype=settings.dtype, device=settings.device, threads=settings.threads)

    @Slot(str)
    def _choose_theme(self, choice: str) -> None:
        self._theme.set_choice(choice)
        self._change(replace(self._settings, theme=choice))

    @Slot(str)
    def _remember_model(self, path: str) -> None:
        self._change(replace(self._settings, last_model=path))

    def _change(self, settings: Settings) -> None:
        self._settings = settings
        if not self._is_saved or self._screenshot is not None:
            return
        try:
            save_settings(self._paths.settings_file, settings)
        except OSError as error:
            self._is_saved = False
            self.window.notices.add(f"The settings could not be saved ({error}); they hold until the window closes.")

    # The end

    def _refuse(self) -> None:
        self.window.status_line.show_closing()

    def _stop_sampler(self) -> None:
        if self.sampler is not None:
            self.sampler.stop()

    def _save(self) -> None:
        window = self.window
        self._change(
            replace(
                self._settings,
                window_geometry=window.geometry_text,
                pane_sizes_px=window.pane_sizes_px,
                list_shown=window.list_shown,
                dashboard_shown=window.dashboard_shown,
            )
        )

    @Slot(bool)
    def _on_ended(self, all_ended: bool) -> None:
        self._has_ended = all_ended
        self.window.finish()
        self._application.exit(self._exit_code)

    @Slot(str)
    def _on_screenshot(self, problem: str) -> None:
        status = self.client.status
        problem = problem or (status.message if status.state is EngineState.FAILED else "")
        if problem:
            sys.stderr.write(f"kvscope: {problem}\n")
            self._exit_code = 1
        self._shutdown.begin()
