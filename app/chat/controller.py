"""What happens in the chat: sends, stops, retries, and brings what arrives to the turn that it belongs to.

One per window. It holds the truth about every conversation that was looked at, writes it to the history, and speaks to
the engine through a client; widgets show what its signals say. Which conversation is in view does not matter to any
answer: several may be written at once.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.client import EngineClientLike
from app.chat.conversation import NEW_TITLE, Conversation, Role, Turn, TurnState, TurnStats, messages_of, title_of
from app.chat.history import History, HistoryError
from app.chat.history_rows import NEW_DRAFT
from engine.errors import EngineError
from engine.events import EngineState, EngineStatus, FinishReason, RequestFailed, RequestFinished
from engine.requests import Request, SamplingParams

HEALTH_PERIOD_MS = 2000


@dataclass(slots=True)
class _Running:
    """An answer that may still grow. `request_id` is empty while it waits for a model."""

    conversation_id: str
    position: int
    request_id: str = ""


class ChatController(QObject):
    """Owns the conversations of a window.

    Signals:
        conversations_changed: one came, went, or has another title or place.
        selected: another conversation is in view; carries its id.
        turn_added, turn_changed: carries the Turn.
        text_grew: an answer grew; carries the Turn and how many tokens it has.
        running_changed: whether a conversation is being answered; carries its id.
        status_changed: the engine is in another state; carries the EngineStatus.
        troubled: something went wrong that belongs to no answer; carries a sentence.
    """

    conversations_changed = Signal()
    selected = Signal(str)
    turn_added = Signal(object)
    turn_changed = Signal(object)
    text_grew = Signal(object, int)
    running_changed = Signal(str)
    status_changed = Signal(object)
    troubled = Signal(str)

    def __init__(
        self,
        client: EngineClientLike,
        history: History,
        parent: QObject | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(parent)
        self.sampling = SamplingParams(temperature=0.7, top_p=0.95)
        self.system_prompt = ""  # of conversations that begin
        self._client = client
        self._history = history
        self._clock = clock
        self._conversations = {each.id: each for each in history.conversations()}
        self._turns: dict[str, list[Turn]] = {}
        self._drafts = history.drafts()
        self._running: dict[str, _Running] = {}  # by turn
        self._requests: dict[str, str] = {}  # request to turn, until the engine has answered
        self._num_requests = 0
        self._new_id = ""  # a conversation that holds nothing yet
        self._current_id = ""
        self._told_trouble = ""
        self._is_closed = False
        self.new_conversation()
        client.status_changed.connect(self.on_status)
        client.text_arrived.connect(self.on_text)
        client.request_finished.connect(self.on_finished)
        client.request_failed.connect(self.on_failed)
        self._health = QTimer(self, interval=HEALTH_PERIOD_MS)
        self._health.timeout.connect(self._check_history)
        self._health.start()

    # What there is

    @property
    def status(self) -> EngineStatus:
        """State of the engine."""
        return self._client.status

    @property
    def is_saved(self) -> bool:
        """Whether conversations outlive the program."""
        return self._history.is_saved

    @property
    def current_id(self) -> str:
        """The conversation in view."""
        return self._current_id

    @property
    def conversations(self) -> tuple[Conversation, ...]:
        """All that hold something, the newest first."""
        return tuple(sorted(self._conversations.values(), key=lambda each: -each.updated_s))

    def title(self, conversation_id: str) -> str:
        """Title of a conversation."""
        conversation = self._conversations.get(conversation_id)
        return conversation.title if conversation else NEW_TITLE

    def turns(self, conversation_id: str) -> tuple[Turn, ...]:
        """Turns of a conversation, in order."""
        return tuple(self._loaded(conversation_id))

    def is_running(self, conversation_id: str) -> bool:
        """Whether an answer is being written there, or waits for a model."""
        return any(each.conversation_id == conversation_id for each in self._running.values())

    def new_tokens(self, turn_id: str) -> int:
        """Tokens of an answer that is being written."""
        running = self._running.get(turn_id)
        return len(self._turns[running.conversation_id][running.position].token_ids) if running else 0

    def conversation_of(self, request_id: str) -> str:
        """The conversation that a request answers in; empty once it has ended, or when it is not of the chat."""
        running = self._running.get(self._requests.get(request_id, ""))
        return running.conversation_id if running else ""

    def search(self, text: str) -> frozenset[str]:
        """Conversations whose title or turns contain `text`."""
        if self._is_closed:
            return frozenset()
        try:
            return self._history.search(text)
        except HistoryError as error:
            self.troubled.emit(str(error))
            return frozenset(self._conversations)

    def draft(self, conversation_id: str) -> str:
        """What was typed there and not sent."""
        return self._drafts.get(self._draft_key(conversation_id), "")

    def set_draft(self, conversation_id: str, text: str) -> None:
        """Remember what was typed, over the end of the program, too."""
        key = self._draft_key(conversation_id)
        if text != self._drafts.get(key, "") and not self._is_closed:
            self._drafts[key] = text
            self._history.save_draft(key, text.encode("utf-8", "replace").decode())

    # What the user does

    @Slot()
    def new_conversation(self) -> None:
        """Begin one, or go to the one that holds nothing yet."""
        if not self._new_id:
            self._new_id = uuid.uuid4().hex
            self._turns[self._new_id] = []
        self.select(self._new_id)

    @Slot(str)
    def select(self, conversation_id: str) -> None:
        """Bring a conversation into view."""
        if conversation_id != self._current_id:
            self._current_id = conversation_id
            self.selected.emit(conversation_id)

    def send(self, text: str) -> bool:
        """Send a prompt in the conversation in view; False when there is nothing to send, or an answer is on its way.

        Without a model it waits for one.
        """
        text = text.encode("utf-8", "replace").decode()  # a paste may hold half a character
        conversation_id = self._current_id
        if not text.strip() or self.is_running(conversation_id) or self._is_closed:
            return False
        self._loaded(conversation_id)
        if conversation_id not in self._turns:
            return False  # it could not be read, which was said
        draft = self.draft(conversation_id)
        self.set_draft(conversation_id, "")
        self._touch(conversation_id, text)
        if draft != text:
            self.set_draft(conversation_id, draft)
        self._add_turn(conversation_id, Role.USER, text, TurnState.COMPLETE)
        answer = self._add_turn(conversation_id, Role.ASSISTANT, "", TurnState.QUEUED)
        self._start(answer)
        return True

    @Slot(str)
    def retry(self, turn_id: str) -> None:
        """Compute an answer again."""
        turn = self._find(turn_id)
        if turn is None or turn.role is not Role.ASSISTANT or self.is_running(turn.conversation_id):
            return
        fresh = replace(turn, text="", token_ids=(), model="", state=TurnState.QUEUED, stats=None, message="")
        self._put(fresh)
        self._start(fresh)

    @Slot()
    def stop(self) -> None:
        """Stop the answer in view; what it holds stays."""
        self._stop(self._current_id)

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title; an empty one changes nothing."""
        title = " ".join(title.split())
        if title and conversation_id in self._conversations:
            self._save_head(replace(self._conversations[conversation_id], title=title))

    def delete(self, conversation_id: str) -> Conversation | None:
        """Take a conversation out; `restore` brings it back. An answer on its way is stopped."""
        conversation = self._conversations.pop(conversation_id, None)
        if conversation is None:
            return None
        self._stop(conversation_id)
        self._history.delete(conversation_id)
        if conversation_id == self._current_id:
            self.new_conversation()
        self.conversations_changed.emit()
        return conversation

    def restore(self, conversation: Conversation) -> None:
        """Undo `delete`."""
        self._conversations[conversation.id] = conversation
        self._history.restore(conversation.id)
        self.conversations_changed.emit()
        self.select(conversation.id)

    def close(self) -> None:
        """Stop what still runs and write everything. Repetitions do nothing."""
        self._is_closed = True
        self._health.stop()
        for conversation_id in {each.conversation_id for each in self._running.values()}:
            self._stop(conversation_id)
        self._history.close()

    # What the engine says

    @Slot(object)
    def on_status(self, status: EngineStatus) -> None:
        """Prompts that waited for a model go to it, or hear that there is none."""
        waiting = [turn_id for turn_id, each in self._running.items() if not each.request_id]
        if status.state in (EngineState.READY, EngineState.FAILED):
            for turn_id in waiting:
                turn = self._find(turn_id)
                if turn is not None:
                    self._start(turn)
        self.status_changed.emit(status)

    @Slot(str, str, object)
    def on_text(self, request_id: str, text: str, token_ids: tuple[int, ...]) -> None:
        """An answer grows, whether or not it is in view."""
        turn_id = self._requests.get(request_id, "")
        running = self._running.get(turn_id)
        if running is None or running.request_id != request_id:
            return  # computed after the stop
        turn = self._turns[running.conversation_id][running.position]
        turn = replace(turn, text=turn.text + text, token_ids=turn.token_ids + token_ids, model=self._model)
        self._turns[running.conversation_id][running.position] = turn
        self._history.stream_turn(turn)
        self.text_grew.emit(turn, len(turn.token_ids))

    @Slot(object)
    def on_finished(self, end: RequestFinished) -> None:
        """An answer is complete, was stopped, or failed."""
        turn = self._end_request(end.request_id)
        if turn is None:
            return
        states = {FinishReason.CANCELLED: TurnState.STOPPED, FinishReason.ERROR: TurnState.FAILED}
        if turn.state.is_open:
            # The end token is the template's to write.
            token_ids = turn.token_ids[:-1] if end.reason is FinishReason.EOS else turn.token_ids
            turn = replace(turn, state=states.get(end.reason, TurnState.COMPLETE), token_ids=token_ids)
        self._finish(replace(turn, stats=TurnStats.of(end), message=end.message))

    @Slot(object)
    def on_failed(self, end: RequestFailed) -> None:
        """A request was refused, or its engine broke."""
        turn = self._end_request(end.request_id)
        if turn is not None and turn.state.is_open:
            self._finish(replace(turn, state=TurnState.FAILED, message=end.message))

    # Inside

    @property
    def _model(self) -> str:
        """Identity of the model that is loaded: every text comes after the status of its model."""
        info = self._client.status.info
        return info.identity if info is not None else ""

    def _draft_key(self, conversation_id: str) -> str:
        return NEW_DRAFT if conversation_id == self._new_id else conversation_id

    def _loaded(self, conversation_id: str) -> list[Turn]:
        if conversation_id not in self._turns:
            try:
                self._turns[conversation_id] = list(self._history.turns(conversation_id))
            except HistoryError as error:
                self.troubled.emit(str(error))
                return []
        return self._turns[conversation_id]

    def _find(self, turn_id: str) -> Turn | None:
        return next((turn for turns in self._turns.values() for turn in turns if turn.id == turn_id), None)

    def _touch(self, conversation_id: str, prompt: str) -> None:
        """The conversation is the newest now; the first prompt makes it one."""
        now_s = self._clock()
        head = self._conversations.get(conversation_id)
        if head is None:
            head = Conversation(
                id=conversation_id,
                title=title_of(prompt),
                created_s=now_s,
                updated_s=now_s,
                system_prompt=self.system_prompt,
            )
            self._new_id = ""
        self._save_head(replace(head, updated_s=now_s))

    def _save_head(self, conversation: Conversation) -> None:
        self._conversations[conversation.id] = conversation
        self._history.save_conversation(conversation)
        self.conversations_changed.emit()

    def _add_turn(self, conversation_id: str, role: Role, text: str, state: TurnState) -> Turn:
        turns = self._loaded(conversation_id)
        turn = Turn(
            id=uuid.uuid4().hex,
            conversation_id=conversation_id,
            position=len(turns),
            role=role,
            text=text,
            state=state,
        )
        turns.append(turn)
        self._history.save_turn(turn)
        self.turn_added.emit(turn)
        return turn

    def _put(self, turn: Turn) -> None:
        self._turns[turn.conversation_id][turn.position] = turn
        self._history.save_turn(turn)
        self.turn_changed.emit(turn)

    def _start(self, answer: Turn) -> None:
        """Give a prompt to the engine, or let it wait for one."""
        self._running[answer.id] = _Running(answer.conversation_id, answer.position)
        status = self._client.status
        if status.state is EngineState.READY:
            self._submit(answer)
        elif status.state is EngineState.FAILED:
            message = status.message or "The model is not running. Load it again, then retry."
            self._finish(replace(answer, state=TurnState.FAILED, message=message))
        else:
            self._put(replace(answer, state=TurnState.QUEUED))
        self.running_changed.emit(answer.conversation_id)

    def _submit(self, answer: Turn) -> None:
        self._num_requests += 1
        request_id = f"chat-{self._num_requests}"
        head = self._conversations[answer.conversation_id]
        turns = self._turns[answer.conversation_id][: answer.position]
        messages = messages_of(head.system_prompt, turns, self._model)
        try:
            request = Request(request_id=request_id, messages=messages, sampling=self.sampling)
        except EngineError as error:
            self._finish(replace(answer, state=TurnState.FAILED, message=str(error)))
            return
        self._running[answer.id].request_id = request_id
        self._requests[request_id] = answer.id
        self._put(replace(answer, state=TurnState.STREAMING))
        self._client.submit(request)

    def _stop(self, conversation_id: str) -> None:
        for running in tuple(self._running.values()):
            if running.conversation_id == conversation_id:
                turn = self._turns[conversation_id][running.position]
                # Marked at once: the engine may be in the middle of a long step.
                self._finish(replace(turn, state=TurnState.STOPPED))
                if running.request_id:
                    self._client.cancel(running.request_id)

    def _end_request(self, request_id: str) -> Turn | None:
        turn = self._find(self._requests.pop(request_id, ""))
        running = self._running.get(turn.id) if turn else None
        # A retry may have begun while the first request was being cancelled.
        return None if running is not None and running.request_id != request_id else turn

    def _finish(self, turn: Turn) -> None:
        self._running.pop(turn.id, None)
        self._put(turn)
        self.running_changed.emit(turn.conversation_id)

    @Slot()
    def _check_history(self) -> None:
        failure = self._history.failure
        trouble = str(failure) if failure else ""
        if trouble and trouble != self._told_trouble:
            self.troubled.emit(trouble)
        self._told_trouble = trouble
