"""The thread that looks at the memory: owns the probe's handles and a running release, speaks by signals.

What it does stands in `sampler`; here is only the thread. A sampler that breaks says so and ends; the rest of the
window lives on, and it can be started again.
"""

import logging
import traceback
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from PySide6.QtCore import QObject, QThread, Signal

from app.gpu.probe import OpenedProbe, open_probe
from app.gpu.record import MemorySample, ProcessIdentity, ReleaseReport
from app.gpu.release import Release
from app.monitor.sampler import Kill, Pace, ReleaseFactory, Sampler, SamplerCommand, SetPace, StartRelease, Stop
from engine.errors import EngineError

log = logging.getLogger(__name__)


class SamplerThread(QThread):
    """Signals carry frozen values: `sampled` a MemorySample, `release_progressed` a ReleaseReport.

    `troubled`: a look failed and is tried again; `failed`: it has ended and may be started again.
    `release_failed`: a release could not begin, and nobody was signalled.
    `probe_opened`: a sentence about which memory is shown.
    """

    sampled = Signal(object)
    release_progressed = Signal(object)
    probe_opened = Signal(str)
    troubled = Signal(str)
    release_failed = Signal(str)
    failed = Signal(str)

    def __init__(
        self,
        *,
        open_probe: Callable[[], OpenedProbe] = open_probe,
        open_release: ReleaseFactory = Release,
        parent: QObject | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            open_probe: called in the thread.
            open_release: builds a release of the chosen processes; `partial(Release, journal=...)` keeps a journal.
            parent: its owner.
        """
        super().__init__(parent)
        self.setObjectName("sampler")
        self._commands: SimpleQueue[SamplerCommand] = SimpleQueue()
        self._make_sampler = partial(Sampler, open_probe=open_probe, open_release=open_release)

    def start_sampling(self) -> None:
        """Start, or start again after a failure. What was asked of a dead sampler is forgotten, not done late."""
        if not self.isRunning():
            self._commands = SimpleQueue()
            self.start()

    def post(self, command: SamplerCommand) -> None:
        """Tell it something; returns at once, from any thread."""
        self._commands.put(command)

    def set_pace(self, pace: Pace) -> None:
        """Look more or less often."""
        self.post(SetPace(pace))

    def start_release(self, identities: tuple[ProcessIdentity, ...]) -> None:
        """Ask these to exit, as the user has agreed."""
        self._post_or_tell(StartRelease(identities))

    def kill(self, identities: tuple[ProcessIdentity, ...]) -> None:
        """End those that did not exit, as the user has agreed a second time."""
        self._post_or_tell(Kill(identities))

    def _post_or_tell(self, command: SamplerCommand) -> None:
        """What a dead sampler cannot do must be said, or somebody waits for ever."""
        if self.isRunning():
            self.post(command)
        else:
            self.release_failed.emit("Nothing was done: nobody looks at the memory now. Press “Look again” first.")

    def stop(self) -> None:
        """Ask it to end; `finished` follows within a fraction of a second."""
        self.post(Stop())

    def run(self) -> None:
        """Serve until stopped."""
        try:
            self._make_sampler(self._commands, _Signals(self)).run()
        except EngineError as error:
            log.warning("the sampler ended: %s", error)
            self.failed.emit(str(error))
        except Exception as error:
            log.exception("the sampler broke")
            words = traceback.format_exception_only(error)[-1].strip()
            self.failed.emit(f"Looking at the memory stopped ({words}). Press “Look again” to go on.")


class _Signals:
    """The sampler's sink: every call becomes a signal."""

    def __init__(self, thread: SamplerThread) -> None:
        self._thread = thread

    def opened(self, why: str) -> None:
        self._thread.probe_opened.emit(why)

    def sampled(self, sample: MemorySample) -> None:
        self._thread.sampled.emit(sample)

    def released(self, report: ReleaseReport) -> None:
        self._thread.release_progressed.emit(report)

    def troubled(self, message: str) -> None:
        self._thread.troubled.emit(message)

    def release_failed(self, message: str) -> None:
        self._thread.release_failed.emit(message)
