"""What can go wrong, said to the user. Each class builds its sentence from facts.

A text says what happened, what was asked, and what to try.
"""

from typing import ClassVar


class EngineError(Exception):
    """Base of every error whose text is meant for the user. `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


def reason(error: Exception) -> str:
    """What to say of any error inside a sentence: its text without the full stop, or its name where it has none."""
    return str(error).rstrip(". \n") or type(error).__name__


class UsageError(EngineError):
    """The input cannot be used as given: a missing file, a foreign format, an option out of range."""

    exit_code = 2


class RefusalError(EngineError):
    """What was asked is understood and will not be done."""

    exit_code = 3


class ModelError(UsageError):
    """A model file or folder that cannot be loaded."""


class RequestError(UsageError):
    """A request that can never be served."""


class PromptTooLongError(RequestError):
    """The prompt leaves no room for an answer."""

    def __init__(self, *, prompt_tokens: int, limit_tokens: int, limited_by: str) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens:,} tokens, but {limited_by} allows {limit_tokens:,} including the answer. "
            "Shorten the prompt or start a new conversation."
        )
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens


class CacheTooSmallError(RefusalError):
    """A smaller cache would leave an open request without room for another token."""

    def __init__(self, *, num_blocks: int, capacity_tokens: int, longest_tokens: int, needed_blocks: int) -> None:
        super().__init__(
            f"A KV cache of {num_blocks:,} blocks holds {capacity_tokens:,} tokens, but an open answer has "
            f"{longest_tokens:,} with its prompt. Keep at least {needed_blocks:,} blocks, or stop that answer first."
        )
        self.needed_blocks = needed_blocks


class CacheAllocationError(RefusalError):
    """The memory for another size of the cache is not to be had."""

    def __init__(self, *, num_blocks: int, kept_blocks: int, reason: str) -> None:
        super().__init__(
            f"There is no memory for a KV cache of {num_blocks:,} blocks ({reason}). "
            f"It keeps its {kept_blocks:,}; ask for fewer, or free memory first."
        )


class ChatTemplateError(RequestError):
    """The model's chat template does not take the conversation."""

    def __init__(self, *, model: str, reason: str) -> None:
        super().__init__(
            f"The chat template of {model} does not take this conversation: {reason.rstrip('.')}. "
            "Try it without a system prompt and with user and assistant taking turns, or choose another model."
        )
        self.model = model
        self.reason = reason


class UnknownModelError(ModelError):
    """A model name that names nothing on this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no model called {name!r} here. Give a GGUF file, a folder with safetensors files, "
            "or a name from `kvscope models list`."
        )


class LoadCancelledError(EngineError):
    """Loading was stopped by the user."""

    def __init__(self) -> None:
        super().__init__("Loading was cancelled.")
