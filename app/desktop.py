"""The running program: window, engine, sampler and settings put together, started in order and ended in stages.

The order is the point: what the first paint needs comes first, the graphs (pyqtgraph) after it, the model (torch, in
the engine's thread) last.
"""

import os
import sys
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, QTimer, Slot

from app.bridge.engine_client import EngineClient
from app.chat_side import ChatSide
from app.connections import connect_models, connect_status_line
from app.dashboard_side import DashboardSide
from app.error_dialog import ErrorReporter
from app.logs import ExceptionHooks, Logs, log_qt_messages
from app.models.banner import ModelBanner
from app.models.controller import ModelController, WithoutModel
from app.models.header import ModelHeader
from app.models.load_record import LoadRecord
from app.models.starter_fetch import Fetch
from app.opening import Opening, prepare
from app.options import WindowOptions
from app.preferences import Preferences
from app.scenario import CHAT, ChatRun, ScenarioRun
from app.scenario_card import ScenarioCard
from app.screenshot import Screenshot
from app.settings_dialog import SettingsDialog
from app.shutdown import Shutdown, SignalWatcher, Worker
from app.start_trace import StartTrace
from app.theme import Theme
from app.window import MainWindow
from engine.catalog.starter import fetch_starter
from engine.config import EngineConfig
from engine.events import EngineState, EngineStatus
from engine.loop import EngineFactory


def run(options: WindowOptions) -> int:
    """Show the window until it is closed; returns the exit code.

    Raises:
        EngineError: the window cannot be opened as asked.
    """
    # Read by torch's thread pool when it is loaded. By default the threads of a team that wait for the slowest one
    # spin, and take the cores from the window and from other programs: with two cores and one of them busy, a batch
    # of 16 took 9.9 s instead of 5.6 s. Without other work sleeping costs 6 to 30 % of speed and saves CPU time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    opening = prepare(options)
    if opening is not None:
        return Desktop(opening).execute()
    rest = " The model given here was not loaded: choose it there." if options.model else ""
    sys.stdout.write(f"KVScope is open already with this data folder; its window was brought to the front.{rest}\n")
    return 0


class Desktop(QObject):
    """Everything, built and not yet shown.

    Args:
        opening: what was checked before.
        load_engine: what loads a model; None takes the real engine.
        fetch: what fetches the starter.
    """

    def __init__(
        self, opening: Opening, *, load_engine: EngineFactory | None = None, fetch: Fetch = fetch_starter
    ) -> None:
        super().__init__()
        self._opening = opening
        options, paths = opening.options, opening.paths
        self._trace = StartTrace()
        self._exit_code = 0
        self._has_ended = True
        self._logs = Logs(paths.log_file)
        self._reporter = ErrorReporter(self)
        self._hooks = ExceptionHooks(self._reporter.report)
        self._undo_messages = log_qt_messages(self._reporter.report)
        # A picture leaves no traces: neither a geometry nor a last model.
        is_saved = not opening.why_unsaved and options.screenshot is None
        self.preferences = Preferences(
            paths.settings_file, is_saved=is_saved, given=options.engine_settings, parent=self
        )
        self._theme = Theme(opening.application, options.theme or self.preferences.settings.theme)
        self.client = EngineClient(self, load_engine=load_engine)
        self.window = MainWindow()
        self._reporter.set_window(self.window)
        self._header = ModelHeader()
        self._banner = ModelBanner()
        play = opening.scenario
        self._scenario_cards = () if play is None else (ScenarioCard(play.name, play.title, len(play.requests)),)
        record = LoadRecord(paths.load_record, is_kept=is_saved)
        self.models = ModelController(self.client, self._banner, opening.folders, self._configure, record, fetch=fetch)
        self.side = DashboardSide(self.window, self.client, self)
        self.chat = ChatSide(self.window, self.client, self._theme, paths, is_saved=is_saved)
        self.chat.use(self.preferences.settings)
        self._build_window()
        self.shutdown = self._prepare_shutdown()
        self._scenario = self._prepare_scenario()
        self._screenshot = self._prepare_screenshot()
        self._connect()
        self._tell_notes()

    def execute(self) -> int:
        """Show the window until all has ended; returns the exit code."""
        signals = SignalWatcher(self)
        signals.arrived.connect(self.shutdown.begin)
        self.shutdown.ended.connect(self._leave)
        self._hooks.install()
        self.window.show()
        self._opening.application.exec()
        signals.close()
        self.close()
        if not self._has_ended:
            # A thread that does not end cannot be destroyed; everything is saved, so leave without destructors.
            sys.stderr.flush()
            os._exit(self._exit_code or 1)
        return self._exit_code

    def close(self) -> None:
        """Give back what belongs to the process. Only after the shutdown has ended."""
        self._hooks.remove()
        self._undo_messages()
        self._logs.close()
        self._opening.instance.release()
        self.window.deleteLater()

    @Slot()
    def raise_window(self) -> None:
        """Come to the front."""
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    @Slot()
    def open_settings(self) -> None:
        """Show the settings, and do what is chosen there."""
        preferences = self.preferences
        dialog = SettingsDialog(
            preferences.settings,
            given=preferences.given,
            in_force=preferences.in_force,
            can_load=self.models.can_load_again,
            is_busy=bool(self.client.open_requests),
            parent=self.window,
        )
        dialog.saved.connect(preferences.change)
        dialog.saved.connect(self.chat.use)
        dialog.load_asked.connect(self.models.load_again)
        dialog.open()

    # Building

    def _build_window(self) -> None:
        window, settings = self.window, self.preferences.settings
        self.chat.put_into(self._header, self._banner, *self._scenario_cards)
        self._header.set_menu(window.menu)
        window.set_theme_choice(self._opening.options.theme or settings.theme)
        if self._opening.options.screenshot is None:
            window.restore(
                geometry=settings.window_geometry,
                sizes_px=settings.pane_sizes_px,
                list_shown=settings.list_shown,
                dashboard_shown=settings.dashboard_shown,
            )

    def _connect(self) -> None:
        window, client = self.window, self.client
        connect_models(self._header, self.models, client)
        connect_status_line(window.status_line, client)
        client.status_changed.connect(self._on_status)
        self.models.model_ready.connect(self.preferences.remember_model)
        self.models.starter_declined.connect(self.preferences.decline_starter)
        self.models.noted.connect(window.notices.add)
        self.preferences.troubled.connect(window.notices.add)
        window.theme_chosen.connect(self._theme.set_choice)
        window.theme_chosen.connect(self.preferences.choose_theme)
        window.settings_asked.connect(self.open_settings)
        self._banner.settings_asked.connect(self.open_settings)
        window.painted.connect(self._on_painted)
        window.close_asked.connect(self.shutdown.begin)
        self.shutdown.ended.connect(self._on_ended)
        self._opening.instance.raise_asked.connect(self.raise_window)

    def _prepare_shutdown(self) -> Shutdown:
        client, models, side = self.client, self.models, self.side
        workers = [
            Worker("the sampler", side.stop, lambda: side.is_running),
            Worker("the download", models.stop, lambda: models.is_running),
            Worker("the engine", client.stop, lambda: client.is_running),
        ]
        return Shutdown(refuse=self._refuse, workers=workers, save=self._save, parent=self)

    def _prepare_scenario(self) -> ScenarioRun | ChatRun | None:
        if self._opening.options.scenario == CHAT:
            return ChatRun(self.chat.controller, self.client, self)
        if self._opening.scenario is not None:
            run = ScenarioRun(self._opening.scenario, self.client, self)
            for card in self._scenario_cards:
                run.progressed.connect(card.show_ended)
            return run
        return None

    def _prepare_screenshot(self) -> Screenshot | None:
        path = self._opening.options.screenshot
        if path is None:
            return None
        awaited = {"the graphs", "the memory", "the model"}
        if self._scenario is not None:
            awaited.add("the scenario")
            self._scenario.ended.connect(self._on_scenario_ended)
        screenshot = Screenshot(self.window, path, awaited, self)
        screenshot.taken.connect(self._on_screenshot)
        self.models.settled.connect(self._on_settled)
        self.side.looked.connect(self._on_looked)
        return screenshot

    def _tell_notes(self) -> None:
        notices, opening = self.window.notices, self._opening
        notices.add(self.preferences.note)
        notices.add(self.chat.note)
        if opening.why_unsaved:
            notices.add(
                f"The data folder {opening.paths.data} cannot be written ({opening.why_unsaved}): conversations and "
                "settings of this session will not be kept."
            )

    # The start, stage by stage

    @Slot()
    def _on_painted(self) -> None:
        self._trace.note("first paint")
        QTimer.singleShot(0, self, self._build_dashboard)

    @Slot()
    def _build_dashboard(self) -> None:
        if self.shutdown.has_begun:
            return
        self.side.build(self._theme, self._opening.paths, self.chat.name_of)
        self._trace.note("dashboard ready")
        self._note("the graphs")
        settings = self.preferences.settings
        # A picture of what is there needs no download.
        fetches = settings.fetch_starter and self._opening.options.screenshot is None
        self.models.start(
            self._opening.chosen, settings.last_model, WithoutModel.FETCH if fetches else WithoutModel.ASK
        )

    @Slot(object)
    def _on_status(self, status: EngineStatus) -> None:
        if status.state is EngineState.READY:
            self._trace.note("model ready")

    def _configure(self, model: str) -> EngineConfig:
        config = self.preferences.engine_config(model)
        play = self._opening.scenario
        return config if play is None else play.configure(config, block_size=None, num_kv_blocks=None)

    # The picture

    @Slot()
    def _on_looked(self) -> None:
        self._note("the memory")

    @Slot()
    def _on_settled(self) -> None:
        self._note("the model")
        if self._scenario is not None and self.client.status.state is not EngineState.READY:
            self._note("the scenario")

    @Slot()
    def _on_scenario_ended(self) -> None:
        self._note("the scenario")

    def _note(self, event: str) -> None:
        if self._screenshot is not None:
            self._screenshot.note(event)

    @Slot(str)
    def _on_screenshot(self, problem: str) -> None:
        sentence, code = (problem, 1) if problem else self._why_incomplete()
        if sentence:
            sys.stderr.write(f"kvscope: {sentence}\n")
            self._exit_code = code
        self.shutdown.begin()

    def _why_incomplete(self) -> tuple[str, int]:
        """What is missing in the picture, and the exit code for that; no words when nothing is."""
        status = self.client.status
        if status.state is EngineState.FAILED:
            return status.message, status.exit_code
        if self._scenario is not None and status.state is not EngineState.READY:
            return "The scenario was not played: there is no model. Give one with -m, or fetch the starter first.", 1
        return "", 0

    # The end

    def _refuse(self) -> None:
        self.chat.refuse()
        self.window.status_line.show_closing()

    def _save(self) -> None:
        self.chat.close()
        window, preferences = self.window, self.preferences
        preferences.change(
            replace(
                preferences.settings,
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

    @Slot()
    def _leave(self) -> None:
        self._opening.application.exit(self._exit_code)
