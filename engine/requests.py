"""What is asked of the engine: frozen values, no torch."""

from dataclasses import dataclass, field

from engine.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen and when an answer ends.

    Attributes:
        temperature: 0 takes the most likely token; larger values flatten the distribution. From 0 to 2.
        top_p: keep the smallest set of tokens whose probability reaches this. In (0, 1].
        top_k: keep this many tokens; 0 keeps all.
        seed: the draw at a position is a pure function of (seed, position); None lets the engine choose a seed.
        max_tokens: the most new tokens; None means up to the context's end.
        stop: strings that end the answer; none of them, nor a part, is ever shown.
        ignore_eos: go on after an end token, for benchmarks and demonstrations.
    """

    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 2.0:
            raise RequestError(f"The temperature is {self.temperature}; it must lie between 0 and 2.")
        if not 0.0 < self.top_p <= 1.0:
            raise RequestError(f"top-p is {self.top_p}; it must lie above 0 and at most at 1.")
        if self.top_k < 0:
            raise RequestError(f"top-k is {self.top_k}; it must be 0 (all tokens) or more.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise RequestError(f"The answer's limit is {self.max_tokens} tokens; it must be at least 1.")
        if any(not text for text in self.stop):
            raise RequestError("A stop string is empty; leave it out or give it a character.")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: "system", "user" or "assistant".
        content: its text, the truth.
        token_ids: for an answer, the ids as the loaded model sampled them, without the end token. They are used only
            where they say what `content` says, so that the conversation's prefix is found in the cache.
    """

    role: str
    content: str
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answer to compute.

    The prompt is exactly one of: `messages` (put through the model's chat template), `text` (taken as it stands), or
    `token_ids`.
    """

    request_id: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)

    def __post_init__(self) -> None:
        given = sum((bool(self.messages), self.text is not None, bool(self.token_ids)))
        if given != 1:
            raise RequestError("A request needs exactly one prompt: messages, text or token ids.")
