"""Who hears whom: the connections between packages that do not know each other.

What comes from another thread reaches bound slots of QObjects, never lambdas: Qt runs those in the receiver's thread.
"""

from typing import TYPE_CHECKING

from app.bridge.engine_client import EngineClient
from app.models.controller import ModelController
from app.models.header import ModelHeader
from app.status_line import StatusLine
from app.window import MainWindow

if TYPE_CHECKING:  # they bring pyqtgraph, which must not be loaded before the first paint
    from app.monitor.panel import Dashboard
    from app.monitor.sampler_thread import SamplerThread


def connect_models(header: ModelHeader, models: ModelController, client: EngineClient) -> None:
    """The line above the chat."""
    header.picker_asked.connect(models.open_picker)
    header.cancel_asked.connect(models.cancel)
    models.load_begun.connect(header.on_load_begun)
    client.status_changed.connect(header.on_status)
    client.load_progressed.connect(header.on_load_progress)


def connect_status_line(line: StatusLine, client: EngineClient) -> None:
    """The line at the bottom."""
    client.status_changed.connect(line.on_status)
    client.load_progressed.connect(line.on_load_progress)
    client.text_arrived.connect(line.on_text)
    client.first_token_arrived.connect(line.on_first_token)
    client.request_finished.connect(line.on_finished)
    client.steps_arrived.connect(line.on_steps)
    client.idled.connect(line.on_idle)


def connect_dashboard(
    dashboard: "Dashboard", sampler: "SamplerThread", client: EngineClient, window: MainWindow
) -> None:
    """The graphs: what the engine and the sampler see, and what the user asks the sampler for."""
    client.status_changed.connect(dashboard.on_status)
    client.steps_arrived.connect(dashboard.on_steps)
    client.block_map_arrived.connect(dashboard.on_block_map)
    sampler.sampled.connect(dashboard.on_sample)
    sampler.release_progressed.connect(dashboard.on_release)
    sampler.release_failed.connect(dashboard.on_release_failed)
    sampler.troubled.connect(dashboard.on_sampler_trouble)
    sampler.failed.connect(dashboard.on_sampler_failed)
    dashboard.release_requested.connect(sampler.start_release)
    dashboard.kill_requested.connect(sampler.kill)
    dashboard.restart_requested.connect(sampler.start_sampling)
    window.dashboard_seen_changed.connect(client.set_watched)
