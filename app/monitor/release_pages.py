"""The pages of "Free memory…": the list, a consent, and the wait with its result. Pages show; the dialog decides."""

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QProgressBar,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.gpu.record import MemorySample, ProcessMemory, ReleaseReport
from app.monitor import release_words as words
from app.monitor.buttons import describe_button
from app.monitor.process_table import REASON_COLUMNS, ROW_PX, ProcessTable
from app.theme import ROW_PX as SPACING_PX
from app.widgets import format_bytes

SMALL_BYTES = 1 << 20


class ChoosePage(QWidget):
    """Who may go. `accepted` when the user wants to be asked about the ticked ones."""

    accepted = Signal()
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._sample: MemorySample | None = None
        self._intro = paragraph()
        self.offered = ProcessTable()
        self.offered.allow_ticks()
        self.offered.model_of_processes.ticked_changed.connect(self._show_sum)
        self.small_box = QCheckBox()
        self.small_box.setToolTip("Ending them gives next to nothing back")
        self.small_box.toggled.connect(self._show_processes)
        self._sum = paragraph()
        self._make_not_offered()
        self.ask_button = primary_button("Ask to exit…", "Continue to the confirmation")
        self.ask_button.clicked.connect(self.accepted)
        close_button = plain_button("Close", "Close without ending anything (Esc)")
        close_button.clicked.connect(self.closed)
        layout = stack(
            self, self._intro, self.offered, self.small_box, self.not_offered_toggle, self.not_offered, self._sum,
            button_row(close_button, self.ask_button),
        )  # fmt: skip
        layout.setStretchFactor(self.offered, 1)

    @property
    def ticked(self) -> tuple[ProcessMemory, ...]:
        """The processes that the user has ticked."""
        return self.offered.model_of_processes.ticked

    def show_sample(self, sample: MemorySample) -> None:
        """Take a new look; ticks stay with their processes."""
        self._sample = sample
        self._intro.setText(words.intro_text(sample))
        self._show_processes()
        self._show_sum()

    @Slot()
    def _show_processes(self) -> None:
        processes = self._sample.processes if self._sample is not None else ()
        not_offered = [process for process in processes if process.protected_because]
        offered = [process for process in processes if not process.protected_because]
        small = [process for process in offered if self._is_small(process)]
        shown = offered if self.small_box.isChecked() else [process for process in offered if process not in small]
        self.offered.model_of_processes.set_processes(shown)
        self.not_offered.model_of_processes.set_processes(not_offered)
        self.not_offered_toggle.setText(f"Not offered ({len(not_offered)})")
        self.small_box.setText(f"Show {words.those_text(len(small))} less than 1 MiB, too")
        self.small_box.setAccessibleName(self.small_box.text())
        self.small_box.setVisible(bool(small))

    def _is_small(self, process: ProcessMemory) -> bool:
        """Whether it is left out; what the user has ticked never is, and unknown is not little."""
        held_bytes = process.memory_bytes
        return held_bytes is not None and held_bytes < SMALL_BYTES and process not in self.ticked

    def _make_not_offered(self) -> None:
        self.not_offered = ProcessTable(REASON_COLUMNS)
        self.not_offered.setEnabled(False)
        self.not_offered.setFixedHeight(6 * ROW_PX)
        self.not_offered.hide()
        self.not_offered_toggle = QToolButton()
        self.not_offered_toggle.setCheckable(True)
        self.not_offered_toggle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.not_offered_toggle.setArrowType(Qt.ArrowType.RightArrow)
        describe_button(self.not_offered_toggle, "Which processes are never ended from here, and why")
        self.not_offered_toggle.toggled.connect(self._show_not_offered)

    def _show_not_offered(self, shown: bool) -> None:
        self.not_offered.setVisible(shown)
        self.not_offered_toggle.setArrowType(Qt.ArrowType.DownArrow if shown else Qt.ArrowType.RightArrow)

    def _show_sum(self) -> None:
        if self._sample is not None:
            self._sum.setText(words.sum_text(self._sample, self.ticked))
        whom = f" {words.processes_text(len(self.ticked))}" if self.ticked else ""
        self.ask_button.setText(f"Ask{whom} to exit…")
        self.ask_button.setAccessibleName(self.ask_button.text())
        self.ask_button.setEnabled(bool(self.ticked))


class ConsentPage(QWidget):
    """One question with its consequences. `agreed`, or `refused`; Back has the focus."""

    agreed = Signal()
    refused = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._question = paragraph()
        font = self._question.font()
        font.setBold(True)
        self._question.setFont(font)
        self._names = paragraph()
        self._names.setObjectName("secondary")
        self.explanation = paragraph()
        self.agree_button = primary_button("Agree", "Do it")
        self.agree_button.clicked.connect(self.agreed)
        self.back_button = plain_button("Back", "Go back without doing it (Esc)")
        self.back_button.clicked.connect(self.refused)
        stack(
            self, self._question, self._names, self.explanation, None, button_row(self.back_button, self.agree_button)
        )

    def ask(self, question: str, names: str, explanation: str, agree: str, *, style: str = "primary") -> None:
        """Put another question; `style` is the style sheet's name for the button that agrees."""
        self._question.setText(question)
        self._names.setText(names)
        self.explanation.setText(explanation)
        self.agree_button.setText(agree)
        self.agree_button.setObjectName(style)
        self.agree_button.style().polish(self.agree_button)
        describe_button(self.agree_button, agree)
        self.back_button.setFocus()


class ProgressPage(QWidget):
    """The wait and its result. `force_wanted` when processes are left and the user wants to be asked about SIGKILL."""

    force_wanted = Signal()
    closed = Signal()
    again = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.headline = paragraph()
        font = self.headline.font()
        font.setBold(True)
        self.headline.setFont(font)
        self.countdown = QProgressBar()
        self.countdown.setTextVisible(False)
        self.countdown.setAccessibleName("Time left for them to exit")
        self.states = _states_table()
        self._note = paragraph()
        self._note.setObjectName("secondary")
        self.force_button = plain_button("Force", "Ask about SIGKILL for those that did not exit")
        self.force_button.clicked.connect(self.force_wanted)
        self.again_button = plain_button("Back to the list", "Choose other processes")
        self.again_button.clicked.connect(self.again)
        self.close_button = plain_button("Close", "Close this window; nobody else is asked or forced (Esc)")
        self.close_button.clicked.connect(self.closed)
        stack(
            self, self.headline, self.countdown, self.states, self._note,
            button_row(self.force_button, self.again_button, self.close_button),
        )  # fmt: skip

    def show_sent(self) -> None:
        """Between the consent and the first report."""
        self.headline.setText("Asking…")
        self.states.setRowCount(0)
        self._note.setText("")
        self._show_countdown(0.0)
        self.countdown.show()
        self.force_button.hide()
        self.again_button.hide()

    def show_failure(self, message: str) -> None:
        """The release could not go on."""
        self.headline.setText(message)
        self.countdown.hide()
        self._note.setText("")
        self.force_button.hide()
        self.again_button.show()

    def show_report(self, report: ReleaseReport) -> None:
        """Show how it stands."""
        self.headline.setText(words.outcome_text(report) if report.finished else words.waiting_text(report))
        self._show_countdown(0.0 if report.finished else report.elapsed_s / max(report.deadline_s, 0.1))
        self.countdown.setVisible(not report.finished)
        self._fill_states(report)
        closing = "You may close this window: the wait goes on, and nobody is forced."
        self._note.setText(report.note if report.finished else closing)
        left = len(words.still_running(report)) if report.finished else 0
        self.force_button.setText(f"Force {left} to end (SIGKILL)…")
        self.force_button.setAccessibleName(self.force_button.text())
        self.force_button.setVisible(left > 0)
        self.again_button.setVisible(report.finished)

    def _show_countdown(self, share: float) -> None:
        self.countdown.setRange(0, 1000)
        self.countdown.setValue(round(1000 * min(1.0, share)))

    def _fill_states(self, report: ReleaseReport) -> None:
        self.states.setRowCount(len(report.results))
        for row, result in enumerate(report.results):
            texts = (
                result.name, str(result.identity.pid), format_bytes(result.promised_bytes), words.state_text(result),
            )  # fmt: skip
            for column, text in enumerate(texts):
                self._set_cell(row, column, text)
        self.states.resizeRowsToContents()

    def _set_cell(self, row: int, column: int, text: str) -> None:
        item = self.states.item(row, column)
        if item is None:
            item = QTableWidgetItem()
            self.states.setItem(row, column, item)
        if item.text() != text:
            item.setText(text)
            item.setToolTip(text)


def _states_table() -> QTableWidget:
    table = QTableWidget(0, 4)
    table.setHorizontalHeaderLabels(["Process", "PID", "Held", "State"])
    table.setAccessibleName("What became of each process")
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(ROW_PX)
    table.horizontalHeader().setHighlightSections(False)
    table.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft)
    table.horizontalHeader().setSectionResizeMode(3, QHeaderView.ResizeMode.Stretch)
    for column, width in enumerate((150, 72, 84)):
        table.setColumnWidth(column, width)
    table.setShowGrid(False)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
    table.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return table


def paragraph() -> QLabel:
    """A label that wraps its plain text."""
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    return label


def plain_button(text: str, what: str) -> QPushButton:
    """A button that Enter does not press by itself."""
    button = QPushButton(text)
    button.setAutoDefault(False)
    describe_button(button, what)
    return button


def primary_button(text: str, what: str) -> QPushButton:
    """The one button of a page in the accent colour."""
    button = plain_button(text, what)
    button.setObjectName("primary")
    return button


def button_row(*buttons: QPushButton) -> QHBoxLayout:
    """Buttons on the right."""
    row = QHBoxLayout()
    row.setSpacing(SPACING_PX)
    row.addStretch(1)
    for button in buttons:
        row.addWidget(button)
    return row


def stack(page: QWidget, *parts: QWidget | QHBoxLayout | None) -> QVBoxLayout:
    """Parts below each other; None is room that grows."""
    layout = QVBoxLayout(page)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(SPACING_PX)
    for part in parts:
        if part is None:
            layout.addStretch(1)
        elif isinstance(part, QHBoxLayout):
            layout.addLayout(part)
        else:
            layout.addWidget(part)
    return layout
