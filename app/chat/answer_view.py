"""What the model wrote, or why it did not: text, error, figures, and what can be done."""

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.answer_text import AnswerText
from app.chat.conversation import Turn, TurnState, TurnStats
from app.chat.markdown import MarkdownReader
from app.chat.message_view import CopyMessageButton, MessageView, quiet_button
from app.theme import Colours
from app.widgets import READABLE_MS, ElidedLabel, Pacer

FOLD_CHARS = 40_000  # an answer of this length takes the layout a tenth of a second

REASONS = {
    "length": "reached the token limit",
    "capacity": "ended: the KV cache is full",
    "cancelled": "",  # the turn says "stopped"
}


def stats_line(turn: Turn) -> str:
    """The figures: "48.2 tok/s · first token 0.14 s · 96 tokens · prompt 12 new, 460 cached · stopped"."""
    parts = _figures(turn.stats) if turn.stats else []
    if turn.state is TurnState.STOPPED:
        parts.append("stopped" if turn.text else "stopped before the first token")
    elif turn.stats and REASONS.get(turn.stats.reason):
        parts.append(REASONS[turn.stats.reason])
    return " · ".join(parts)


def _figures(stats: TurnStats) -> list[str]:
    parts = []
    if stats.tokens_per_s is not None:
        parts.append(f"{stats.tokens_per_s:.1f} tok/s")
    if stats.ttft_s is not None:
        parts.append(f"first token {stats.ttft_s:.2f} s")
    parts.append(f"{stats.new_tokens:,} token{'' if stats.new_tokens == 1 else 's'}")
    if stats.ttft_s is not None:
        cached = f", {stats.cached_tokens:,} cached" if stats.cached_tokens else ""
        parts.append(f"prompt {_computed(stats):,} new{cached}")
    return parts


def _computed(stats: TurnStats) -> int:
    return stats.prompt_tokens - stats.cached_tokens


def stats_tip(turn: Turn) -> str:
    """The same figures, explained."""
    stats = turn.stats
    if stats is None or stats.ttft_s is None:
        return stats_line(turn)
    return (
        f"{stats_line(turn)}\n\n"
        f"The prompt, with the whole conversation before it, had {stats.prompt_tokens:,} tokens: "
        f"{_computed(stats):,} were computed, and {stats.cached_tokens:,} were still in the KV cache, in whole blocks."
    )


class AnswerView(MessageView):
    """What the model wrote, or why it did not.

    Signals:
        retry_requested: the answer should be computed again; carries the turn's id.
    """

    retry_requested = Signal(str)

    def __init__(self, turn: Turn, reader: MarkdownReader, colours: Colours) -> None:
        self._text = AnswerText(reader, colours)
        super().__init__(turn, self._text)
        self._text.setAccessibleName("Answer")
        self._shown_chars = 0
        self._limit_chars = FOLD_CHARS
        self._new_tokens = 0
        self._more = quiet_button("", "Show more of this answer")
        self._more.clicked.connect(self._unfold)
        self._error = ErrorFrame()
        self._error.retry.clicked.connect(self._on_retry)
        self._copy = CopyMessageButton("this answer")
        self._copy.clicked.connect(self.copy_source)
        self._retry = quiet_button("Retry", "Compute this answer again")
        self._retry.clicked.connect(self._on_retry)
        self._stats = ElidedLabel()
        self._stats.setObjectName("secondary")
        self._count = Pacer(self._show_state, READABLE_MS, self)
        self._lay_out()
        self.show_turn(turn)

    def _lay_out(self) -> None:
        self._footer = QWidget()
        footer = QHBoxLayout(self._footer)
        footer.setContentsMargins(0, 0, 0, 0)
        footer.setSpacing(4)
        footer.addWidget(self._stats, 1)
        footer.addWidget(self._retry)
        footer.addWidget(self._copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self._text)
        column.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._error)
        column.addWidget(self._footer)

    def show_turn(self, turn: Turn) -> None:
        """Show a new state; text that only grew is only appended."""
        grew = turn.text.startswith(self._turn.text[: self._shown_chars])
        self._turn = turn
        if not grew:
            self._text.clear_text()
            self._shown_chars = 0
        if turn.state.is_open:
            self._show_more_text()
            self._text.set_growing(growing=turn.state is TurnState.STREAMING)
        else:
            self._show_more_text()
            self._text.finish()
        self._count.cancel()
        self._show_state()

    def append_text(self, turn: Turn, new_tokens: int) -> None:
        """The answer grew by these tokens."""
        self._turn = turn
        self._new_tokens = new_tokens
        self._show_more_text()
        if self._text.isHidden():
            self._show_state()
        else:
            self._count.ask()

    def set_colours(self, colours: Colours) -> None:
        """Change to other colours."""
        self._text.set_colours(colours)

    def _show_more_text(self) -> None:
        end = min(len(self._turn.text), self._limit_chars)
        if end > self._shown_chars:
            self._text.append_text(self._turn.text[self._shown_chars : end])
            self._shown_chars = end

    @Slot()
    def _unfold(self) -> None:
        self._limit_chars += FOLD_CHARS
        self.show_turn(self._turn)

    @Slot()
    def _on_retry(self) -> None:
        self.retry_requested.emit(self._turn.id)

    def _show_state(self) -> None:
        turn = self._turn
        self._text.setVisible(bool(turn.text))
        hidden = len(turn.text) - self._shown_chars
        self._more.setVisible(hidden > 0)
        self._more.setText(f"Show {min(hidden, FOLD_CHARS):,} of {hidden:,} more characters")
        self._error.setVisible(turn.state is TurnState.FAILED)
        self._error.show_message(turn.message)
        status = self._status_text(turn)
        self._footer.setVisible(bool(status or turn.text))
        self._stats.setText(status)
        if not turn.state.is_open:
            self._stats.setToolTip(stats_tip(turn))
        self._copy.setVisible(bool(turn.text))
        self._retry.setVisible(turn.state is TurnState.STOPPED and not turn.text)

    def _status_text(self, turn: Turn) -> str:
        match turn.state:
            case TurnState.QUEUED:
                return turn.message or "Will be sent when the model is ready."
            case TurnState.STREAMING if not turn.text:
                return "Reading the prompt…"
            case TurnState.STREAMING:
                return f"{self._new_tokens:,} tokens" if self._new_tokens else ""
            case TurnState.FAILED:
                return stats_line(turn) if turn.text else ""
            case _:
                line = stats_line(turn)
                return f"{line} · {turn.message}" if turn.message else line


class ErrorFrame(QFrame):
    """An error at the place of the answer: what happened, and Retry."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("errorMessage")
        self._label = QLabel()
        self._label.setObjectName("error")
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setWordWrap(True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.retry = QPushButton("Retry")
        self.retry.setAccessibleName("Retry")
        self.retry.setToolTip("Compute this answer again")
        self.copy = QPushButton("Copy details")
        self.copy.setAccessibleName("Copy details")
        self.copy.setToolTip("Copy what went wrong")
        self.copy.clicked.connect(self._copy)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.retry)
        buttons.addWidget(self.copy)
        buttons.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 10, 12, 10)
        column.setSpacing(8)
        column.addWidget(self._label)
        column.addLayout(buttons)

    def show_message(self, message: str) -> None:
        """Say what happened."""
        self._label.setText(message)

    @Slot()
    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._label.text())
