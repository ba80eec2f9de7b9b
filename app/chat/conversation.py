"""What a conversation is: frozen values, and the rules that need nothing else. No Qt, no storage, no engine thread."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from engine.events import RequestFinished
from engine.requests import Message

MAX_TITLE_CHARS = 48
NEW_TITLE = "New chat"


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"


class TurnState(StrEnum):
    """Life of a turn. A user's turn is always COMPLETE."""

    QUEUED = "queued"  # waits for a model
    STREAMING = "streaming"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self in (TurnState.QUEUED, TurnState.STREAMING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStats:
    """What an answer cost. `reason` is a FinishReason's value; unknown figures are None."""

    prompt_tokens: int
    new_tokens: int
    cached_tokens: int
    ttft_s: float | None
    tokens_per_s: float | None
    reason: str

    @classmethod
    def of(cls, end: RequestFinished) -> "TurnStats":
        """The part of a request's end that is kept."""
        return cls(
            prompt_tokens=end.prompt_tokens,
            new_tokens=end.new_tokens,
            cached_tokens=end.cached_tokens,
            ttft_s=end.ttft_s,
            tokens_per_s=end.tokens_per_s,
            reason=end.reason.value,
        )

    @property
    def total_tokens(self) -> int:
        """Tokens that the conversation holds after this answer."""
        return self.prompt_tokens + self.new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The head of a conversation. Times are seconds since the epoch."""

    id: str
    title: str
    created_s: float
    updated_s: float
    system_prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message. `text` is the raw source, the truth for copying and for the model.

    Attributes:
        position: 0, 1, 2, ... within the conversation.
        message: the sentence for the user when the turn failed or ended for want of room.
        token_ids: of an answer, as they were sampled, without the end token.
        model: identity of the model that they belong to.
    """

    id: str
    conversation_id: str
    position: int
    role: Role
    text: str
    state: TurnState = TurnState.COMPLETE
    stats: TurnStats | None = None
    message: str = ""
    token_ids: tuple[int, ...] = ()
    model: str = ""


def title_of(prompt: str) -> str:
    """A title from a first prompt: its first line that says something, cut at a word."""
    line = next((line for line in map(str.strip, prompt.splitlines()) if line), NEW_TITLE)
    line = " ".join(line.lstrip("#>*- ").split()) or line
    if len(line) <= MAX_TITLE_CHARS:
        return line
    head, space, _ = line[:MAX_TITLE_CHARS].rpartition(" ")
    return (head if space else line[: MAX_TITLE_CHARS - 1]).rstrip(",;:") + "…"


def messages_of(system_prompt: str, turns: Iterable[Turn], model: str) -> tuple[Message, ...]:
    """What a model of this identity is given: the system prompt and every turn that holds text and did not fail.

    Ids that another model produced are left out. Prompts that stand next to each other, because the answer between
    them failed, become one message: many chat templates insist on alternating roles.
    """
    messages = [Message("system", system_prompt)] if system_prompt.strip() else []
    for turn in turns:
        if turn.state not in (TurnState.COMPLETE, TurnState.STOPPED) or not turn.text:
            continue
        if messages and messages[-1].role == turn.role:
            messages[-1] = Message(turn.role.value, f"{messages[-1].content}\n\n{turn.text}")
        else:
            token_ids = turn.token_ids if model and turn.model == model else ()
            messages.append(Message(turn.role.value, turn.text, token_ids))
    return tuple(messages)
