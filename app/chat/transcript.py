"""The scrolling column of messages: builds the newest ones, follows the end, and keeps its place for the reader.

It follows only while the reader is at the bottom. Scrolling up, by whatever means, ends that; reaching the bottom,
"Newest", or sending begins it again. Growing text, selecting and clicking never scroll.
"""

from collections.abc import Sequence
from itertools import islice

from PySide6.QtCore import QCoreApplication, QEvent, QPointF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.chat.answer_view import AnswerView
from app.chat.conversation import Role, Turn
from app.chat.markdown import MarkdownReader
from app.chat.message_view import MessageView
from app.chat.prompt_view import PromptView
from app.theme import Theme

TURNS_AT_ONCE = 40
BOTTOM_PX = 4  # this near the end counts as being there
MESSAGE_GAP_PX = 16
DRAG_STEP_PX = 24
SETTLE_ROUNDS = 3  # a width reaches a document, whose height reaches its message, whose height reaches the column
MOST_SETTLE_ROUNDS = 24  # while that happens the panes may get other widths, several times over


class Transcript(QScrollArea):
    """Shows the turns of one conversation.

    Signals:
        retry_requested: the answer with this turn's id should be computed again.
        link_activated: an address was clicked.
        following_changed: whether the end is followed.
    """

    retry_requested = Signal(str)
    link_activated = Signal(str)
    following_changed = Signal(bool)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._reader = MarkdownReader()
        self._turns: dict[str, Turn] = {}
        self._views: dict[str, MessageView] = {}
        self._first = 0  # turns before this one are not built
        self._is_following = True
        self._is_settling = False
        self._read_view: MessageView | None = None  # stays where it is while the width changes
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self._column = QWidget()
        self._column.setObjectName("transcript")
        self._layout = QVBoxLayout(self._column)
        self._layout.setContentsMargins(0, 4, 6, 4)
        self._layout.setSpacing(MESSAGE_GAP_PX)
        self._earlier = QPushButton()
        self._earlier.setAccessibleName("Show earlier messages")
        self._earlier.setToolTip("Show the messages before these")
        self._earlier.clicked.connect(self.show_earlier)
        self._layout.addWidget(self._earlier, 0, Qt.AlignmentFlag.AlignHCenter)
        self._layout.addStretch(1)
        self._earlier.hide()
        self.setWidget(self._column)
        self._newest = QPushButton("↓ Newest", self)
        self._newest.setAccessibleName("Go to the newest text")
        self._newest.setToolTip("Go to the newest text and follow it (Ctrl+End)")
        self._newest.setShortcut("Ctrl+End")
        self._newest.clicked.connect(self.follow)
        self._newest.hide()
        bar = self.verticalScrollBar()
        bar.actionTriggered.connect(self._on_user_scrolled)
        bar.rangeChanged.connect(self._on_range_changed)
        bar.setEnabled(False)
        theme.changed.connect(self._on_theme_changed)

    @property
    def is_following(self) -> bool:
        """Whether the end is kept in view."""
        return self._is_following

    @property
    def views(self) -> tuple[MessageView, ...]:
        """The messages that are built, in order."""
        return tuple(self._views.values())

    def view(self, turn_id: str) -> MessageView | None:
        """The view of a turn, if it is built."""
        return self._views.get(turn_id)

    def show_turns(self, turns: Sequence[Turn]) -> None:
        """Show another conversation, from its end."""
        self._clear()
        self._turns = {turn.id: turn for turn in turns}
        self._first = max(0, len(turns) - TURNS_AT_ONCE)
        for turn in turns[self._first :]:
            self._insert(self._layout.count() - 1, turn)
        self._show_earlier_button()
        self.follow()

    def add_turn(self, turn: Turn) -> None:
        """A message came; the end is followed if it is the user's own."""
        self._turns[turn.id] = turn
        self._insert(self._layout.count() - 1, turn)
        if turn.role is Role.USER:
            self.follow()
        self._settle()

    def update_turn(self, turn: Turn) -> None:
        """A message is in another state."""
        self._turns[turn.id] = turn
        view = self._views.get(turn.id)
        if view is not None:
            view.show_turn(turn)
            self._settle()

    def append_text(self, turn: Turn, new_tokens: int) -> None:
        """An answer grew."""
        self._turns[turn.id] = turn
        view = self._views.get(turn.id)
        if isinstance(view, AnswerView):
            view.append_text(turn, new_tokens)
            self._settle()

    @Slot()
    def follow(self) -> None:
        """Go to the end and stay there."""
        self._set_following(following=True)
        self._settle()

    @Slot()
    def show_earlier(self) -> None:
        """Build the messages before those that are built; what is in view stays where it is."""
        bar = self.verticalScrollBar()
        from_end = bar.maximum() - bar.value()
        begin = max(0, self._first - TURNS_AT_ONCE)
        views = dict(self._views)
        self._views.clear()
        for index, turn in enumerate(islice(self._turns.values(), begin, self._first)):
            self._insert(1 + index, turn)
        self._views.update(views)
        self._first = begin
        self._show_earlier_button()
        self._settle()
        bar.setValue(bar.maximum() - from_end)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the bubbles' share of the width, the button's place, and what is read in view."""
        self._read_view = self._read_view or self._top_view()
        # Asked again while they hand out places, layouts forget what they are told: first all widths, then the heights.
        was_settling, self._is_settling = self._is_settling, True
        super().resizeEvent(event)
        for view in self._views.values():
            view.set_available_width(self._available_px())
        self._place_newest()
        self._is_settling = was_settling
        self._settle()

    def _top_view(self) -> MessageView | None:
        """The first message that reaches into the view."""
        top = self.verticalScrollBar().value()
        return next((view for view in self._views.values() if view.geometry().bottom() > top), None)

    def _available_px(self) -> int:
        margins = self._layout.contentsMargins()
        return self.viewport().width() - margins.left() - margins.right()

    def _clear(self) -> None:
        for view in self._views.values():
            self._layout.removeWidget(view)
            view.hide()
            view.deleteLater()
        self._views.clear()
        self._read_view = None

    def _insert(self, index: int, turn: Turn) -> None:
        view: MessageView
        if turn.role is Role.USER:
            view = PromptView(turn)
        else:
            view = AnswerView(turn, self._reader, self._theme.colours)
            view.retry_requested.connect(self.retry_requested)
        view.set_available_width(self._available_px())
        view.link_activated.connect(self.link_activated)
        view.height_changed.connect(self._settle)
        view.dragged.connect(self._on_dragged)
        self._views[turn.id] = view
        self._layout.insertWidget(index, view)
        view.show()  # now, not with the next event: its height counts from here on

    def _show_earlier_button(self) -> None:
        self._earlier.setVisible(self._first > 0)
        self._earlier.setText(f"Show earlier ({self._first:,} more)")

    @Slot()
    def _settle(self) -> None:
        """Bring all layouts up to date now, so that nothing is ever painted at a stale place."""
        if self._is_settling:
            return
        self._is_settling = True
        for done in range(1, MOST_SETTLE_ROUNDS):
            QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
            if done >= SETTLE_ROUNDS and self._is_settled():
                break
        self._is_settling = False
        bar = self.verticalScrollBar()
        if self._is_following:
            bar.setValue(bar.maximum())
        elif self._read_view is not None:
            bar.setValue(self._read_view.y())
        self._read_view = None

    def _is_settled(self) -> bool:
        """Whether every message is as tall as it has to be, and the column holds them all; a hidden one can wait."""
        if not self.isVisible():
            return True
        holds_all = self._column.height() >= self._column.minimumSizeHint().height()
        return holds_all and all(view.has_its_height for view in self._views.values())

    @Slot(int)
    def _on_user_scrolled(self, _action: int) -> None:
        bar = self.verticalScrollBar()
        self._set_following(following=bar.sliderPosition() >= bar.maximum() - BOTTOM_PX)
        if bar.sliderPosition() <= bar.minimum() and self._first > 0:
            QTimer.singleShot(0, self, self.show_earlier)

    @Slot(int, int)
    def _on_range_changed(self, low: int, high: int) -> None:
        self.verticalScrollBar().setEnabled(high > low)
        if self._is_following:
            self.verticalScrollBar().setValue(high)

    def _set_following(self, *, following: bool) -> None:
        self._newest.setVisible(not following)
        if not following:
            self._place_newest()
        if following != self._is_following:
            self._is_following = following
            self.following_changed.emit(following)

    def _place_newest(self) -> None:
        size = self._newest.sizeHint()
        x = (self.viewport().width() - size.width()) // 2
        self._newest.setGeometry(x, self.viewport().height() - size.height() - 8, size.width(), size.height())
        self._newest.raise_()

    @Slot(object)
    def _on_dragged(self, position: QPointF) -> None:
        """Scroll when a selection is dragged beyond the edge."""
        sender = self.sender()
        assert isinstance(sender, MessageView)
        y = sender.mapTo(self.viewport(), position.toPoint()).y()
        bar = self.verticalScrollBar()
        if y < 0:
            self._set_following(following=False)
            bar.setValue(bar.value() - DRAG_STEP_PX)
        elif y > self.viewport().height():
            bar.setValue(bar.value() + DRAG_STEP_PX)

    @Slot()
    def _on_theme_changed(self) -> None:
        for view in self._views.values():
            view.set_colours(self._theme.colours)
