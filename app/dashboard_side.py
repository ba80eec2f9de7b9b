"""The right side of the window and the thread behind it, built after the first paint: pyqtgraph comes with it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.bridge.engine_client import EngineClient
from app.connections import connect_dashboard
from app.paths import Paths
from app.theme import Theme
from app.window import MainWindow

if TYPE_CHECKING:
    from app.monitor.panel import Dashboard
    from app.monitor.sampler_thread import SamplerThread

MIN_HEIGHT_PX = 720  # below it the cards would lose their plots: then the pane scrolls


class DashboardSide(QObject):
    """Dashboard and sampler, once `build` was called.

    Signals:
        looked: the memory was looked at, or cannot be.
    """

    looked = Signal()

    def __init__(self, window: MainWindow, client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._window = window
        self._client = client
        self.dashboard: Dashboard | None = None
        self.sampler: SamplerThread | None = None

    @property
    def is_running(self) -> bool:
        """Whether the sampler's thread has not ended."""
        return self.sampler is not None and self.sampler.isRunning()

    def build(self, theme: Theme, paths: Paths, name_of: Callable[[str], str]) -> None:
        """Put the graphs into the window and start looking at the memory."""
        from app.monitor.panel import Dashboard

        self.sampler = self._build_sampler(paths)
        self.dashboard = Dashboard(theme, name_of=name_of)
        connect_dashboard(self.dashboard, self.sampler, self._client, self._window)
        self._window.set_dashboard(_scrollable(self.dashboard))
        self._window.dashboard_seen_changed.connect(self._set_pace)
        self._client.set_watched(self._window.dashboard_seen)
        self.sampler.start_sampling()

    def _build_sampler(self, paths: Paths) -> "SamplerThread":
        from app.gpu.journal import ReleaseJournal
        from app.gpu.release import Release
        from app.monitor.sampler_thread import SamplerThread

        open_release = partial(Release, journal=ReleaseJournal.in_folder(paths.data))
        sampler = SamplerThread(open_release=open_release, parent=self)
        sampler.sampled.connect(self.looked)
        sampler.failed.connect(self.looked)
        return sampler

    def stop(self) -> None:
        """Ask the sampler to end."""
        if self.sampler is not None:
            self.sampler.stop()

    @Slot(bool)
    def _set_pace(self, seen: bool) -> None:
        from app.monitor.sampler import Pace

        if self.sampler is not None:
            self.sampler.set_pace(Pace.NORMAL if seen else Pace.HIDDEN)


def _scrollable(dashboard: QWidget) -> QScrollArea:
    dashboard.setMinimumHeight(MIN_HEIGHT_PX)
    area = QScrollArea(widgetResizable=True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(dashboard)
    return area
