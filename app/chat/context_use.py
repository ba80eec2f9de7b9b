"""How many tokens a conversation takes. Exact where the engine has counted, a rough guess for the rest. No Qt."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.chat.conversation import Turn

CHARS_PER_TOKEN = 4  # a rule of thumb for English
NEARLY_FULL_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Tokens used of a limit (None while no model is loaded); `is_exact` is False when something is a guess."""

    used_tokens: int
    limit_tokens: int | None
    is_exact: bool

    @property
    def is_nearly_full(self) -> bool:
        """Whether a longer answer may not fit."""
        return self.limit_tokens is not None and self.used_tokens >= NEARLY_FULL_SHARE * self.limit_tokens

    @property
    def is_too_long(self) -> bool:
        """Whether it can no longer be answered."""
        return self.limit_tokens is not None and self.used_tokens >= self.limit_tokens

    @property
    def text(self) -> str:
        """For people: "Context 1,284 of 8,192 tokens", with ≈ for a guess."""
        if not self.used_tokens and self.limit_tokens is None:
            return ""
        used = f"{'' if self.is_exact else '≈ '}{self.used_tokens:,}"
        limit = f" of {self.limit_tokens:,}" if self.limit_tokens is not None else ""
        state = " · too long" if self.is_too_long else " · nearly full" if self.is_nearly_full else ""
        return f"Context {used}{limit} tokens{state}"


def context_use(turns: Sequence[Turn], *, draft: str, new_tokens: int, limit_tokens: int | None) -> ContextUse:
    """The use after the last turn, with what is typed and the tokens of an answer that is being written."""
    used, guessed_chars = new_tokens, len(draft)
    for turn in reversed(turns):
        if turn.stats is not None:
            used += turn.stats.total_tokens
            break
        # The tokens of a growing answer are counted, not guessed.
        guessed_chars += 0 if turn.state.is_open else len(turn.text)
    return ContextUse(used + -(-guessed_chars // CHARS_PER_TOKEN), limit_tokens, guessed_chars == 0)
