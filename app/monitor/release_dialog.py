"""Free memory: choose processes, confirm once, wait in sight, see what came back; SIGKILL only by a second consent.

The dialog decides which page follows which and asks by signals; it ends nothing itself. Closing it is safe at every
stage: before the confirmation nothing has happened, after it nobody is forced.
"""

from enum import Enum, auto

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QDialog, QStackedWidget, QVBoxLayout, QWidget

from app.gpu.record import MemorySample, ReleaseReport
from app.monitor import release_words as words
from app.monitor.release_pages import ChoosePage, ConsentPage, ProgressPage
from app.theme import SPACE_PX
from app.widgets import format_bytes


class Stage(Enum):
    """Where the dialog is."""

    CHOOSING = auto()
    CONFIRMING = auto()
    WAITING = auto()
    DONE = auto()
    CONFIRMING_FORCE = auto()


class ReleaseDialog(QDialog):
    """Both signals carry a tuple of ProcessIdentity: what the user has agreed to, and nothing else."""

    release_requested = Signal(object)
    kill_requested = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Free memory")
        self.resize(680, 440)
        self._stage = Stage.CHOOSING
        self._report: ReleaseReport | None = None
        self.choose, self.consent, self.progress = ChoosePage(), ConsentPage(), ProgressPage()
        self._pages = QStackedWidget()
        for page in (self.choose, self.consent, self.progress):
            self._pages.addWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE_PX, SPACE_PX, SPACE_PX, SPACE_PX)
        layout.addWidget(self._pages)
        self._connect()

    @property
    def stage(self) -> Stage:
        """Where it is."""
        return self._stage

    def open_again(self) -> None:
        """Show the list, or the release that still runs."""
        if self._stage is not Stage.WAITING:
            self._go(Stage.CHOOSING)
        self.show()
        self.raise_()
        self.activateWindow()

    @Slot(object)
    def on_sample(self, sample: MemorySample) -> None:
        """Take a new look; the ticks stay."""
        self.choose.show_sample(sample)

    @Slot(object)
    def on_release(self, report: ReleaseReport) -> None:
        """Show how the release stands."""
        self._report = report
        self.progress.show_report(report)
        if self._stage is Stage.WAITING and report.finished:
            self._go(Stage.DONE)

    @Slot(str)
    def on_failure(self, message: str) -> None:
        """A release that was asked for will not go on: say so instead of waiting for ever."""
        if self._stage is Stage.WAITING:
            self.progress.show_failure(message)
            self._go(Stage.DONE)

    def reject(self) -> None:
        """Esc: one step back from a question, otherwise close. Never an action."""
        match self._stage:
            case Stage.CONFIRMING:
                self._go(Stage.CHOOSING)
            case Stage.CONFIRMING_FORCE:
                self._go(Stage.DONE)
            case _:
                super().reject()

    def _connect(self) -> None:
        self.choose.accepted.connect(self._confirm)
        self.choose.closed.connect(self.reject)
        self.consent.agreed.connect(self._agree)
        self.consent.refused.connect(self.reject)
        self.progress.force_wanted.connect(self._confirm_force)
        self.progress.closed.connect(self.reject)
        self.progress.again.connect(self._choose_again)

    def _confirm(self) -> None:
        ticked = self.choose.ticked
        if not ticked:
            return
        count = words.processes_text(len(ticked))
        self._asked = tuple(process.identity for process in ticked)
        self._go(Stage.CONFIRMING)
        self.consent.ask(
            f"Ask {count} to exit?", words.names_text(ticked), words.ask_text(ticked), f"Ask {count} to exit"
        )

    def _confirm_force(self) -> None:
        left = words.still_running(self._report) if self._report is not None else ()
        if not left:
            return
        self._asked = tuple(result.identity for result in left)
        names = "\n".join(f"{r.name}  (PID {r.identity.pid})  {format_bytes(r.promised_bytes)}" for r in left)
        self._go(Stage.CONFIRMING_FORCE)
        question, agree = f"Force {words.processes_text(len(left))} to end?", f"Force {len(left)} to end (SIGKILL)"
        self.consent.ask(question, names, words.FORCE_TEXT, agree, style="danger")

    def _agree(self) -> None:
        signal = self.release_requested if self._stage is Stage.CONFIRMING else self.kill_requested
        self.choose.offered.model_of_processes.clear_ticks()
        self.progress.show_sent()
        self._go(Stage.WAITING)
        signal.emit(self._asked)

    def _choose_again(self) -> None:
        self._go(Stage.CHOOSING)

    def _go(self, stage: Stage) -> None:
        self._stage = stage
        page: QWidget = self.progress
        if stage is Stage.CHOOSING:
            page = self.choose
        elif stage in (Stage.CONFIRMING, Stage.CONFIRMING_FORCE):
            page = self.consent
        self._pages.setCurrentWidget(page)
