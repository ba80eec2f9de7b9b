"""What is asked of the engine: frozen values, no torch."""

from dataclasses import dataclass, field

from engine.errors import RequestError

MAX_LOGPROBS = 20
MAX_LOGIT_BIAS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen and when an answer ends.

    What changes the scores applies in the order of the attributes: bias, the three penalties, temperature, top-k,
    top-p, min-p.

    Attributes:
        logit_bias: pairs of a token id and what is added to its score, from -100 to 100; each id once.
        repetition_penalty: scores of tokens in prompt or answer are divided by it where they are positive, else
            multiplied (as in transformers). 1 changes nothing; from 0.1 to 10.
        frequency_penalty: taken off a token's score for each time it came in the answer. From -2 to 2.
        presence_penalty: taken off the score of every token that came in the answer. From -2 to 2.
        temperature: 0 takes the most likely token; larger values flatten the distribution. From 0 to 2.
        top_k: keep the tokens whose score is at least the k-th best; 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this. In (0, 1].
        min_p: keep tokens of at least this fraction of the best one's probability. From 0 to 1.
        seed: the draw at a position is a pure function of (seed, position); None lets the engine choose a seed.
        logprobs: None for none; else log probabilities of each new token and of this many most likely ones, up to 20.
        max_tokens: the most new tokens; None means up to the context's end.
        stop: strings that end the answer; none of them, nor a part, is ever shown.
        ignore_eos: go on after an end token, for benchmarks and demonstrations.

    Raises:
        RequestError: a value is out of its range, not a number, or of another type.
    """

    logit_bias: tuple[tuple[int, float], ...] = ()
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check_number("The temperature", self.temperature, 0, 2)
        if not (_is_real(self.top_p) and 0 < self.top_p <= 1):
            raise RequestError(f"top-p is {self.top_p!r}; it must be a number above 0 and at most 1.")
        _check_number("min-p", self.min_p, 0, 1)
        _check_number("The repetition penalty", self.repetition_penalty, 0.1, 10)
        _check_number("The frequency penalty", self.frequency_penalty, -2, 2)
        _check_number("The presence penalty", self.presence_penalty, -2, 2)
        if not _is_count(self.top_k, 0):
            raise RequestError(f"top-k is {self.top_k!r}; it must be a whole number, 0 (all tokens) or more.")
        if self.max_tokens is not None and not _is_count(self.max_tokens, 1):
            raise RequestError(f"The answer's limit is {self.max_tokens!r} tokens; it must be a whole number above 0.")
        if self.seed is not None and not _is_whole(self.seed):
            raise RequestError(f"The seed is {self.seed!r}; it must be a whole number.")
        if self.logprobs is not None and not (_is_count(self.logprobs, 0) and self.logprobs <= MAX_LOGPROBS):
            raise RequestError(
                f"Log probabilities of {self.logprobs!r} tokens were asked for; give a number from 0 to {MAX_LOGPROBS}."
            )
        if not isinstance(self.ignore_eos, bool):
            raise RequestError(f"ignore_eos is {self.ignore_eos!r}; it must be True or False.")
        _check_stop(self.stop)
        _check_bias(self.logit_bias)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: int, least: int) -> bool:
    return _is_whole(value) and value >= least


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_number(name: str, value: float, least: float, most: float) -> None:
    # NaN fails every comparison.
    if not (_is_real(value) and least <= value <= most):
        raise RequestError(f"{name} is {value!r}; it must be a number between {least} and {most}.")


def _check_stop(stop: object) -> None:
    if not isinstance(stop, tuple) or not all(isinstance(text, str) for text in stop):
        raise RequestError(f"The stop strings are {stop!r}; give a tuple of strings.")
    if "" in stop:
        raise RequestError("A stop string is empty; leave it out or give it a character.")


def _check_bias(pairs: object) -> None:
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise RequestError(f"The logit bias is {pairs!r}; give a tuple of pairs of a token id and a number.")
    for token_id, value in pairs:
        if not _is_count(token_id, 0):
            raise RequestError(f"The logit bias names the token {token_id!r}; a token id is a whole number from 0 on.")
        _check_number(f"The logit bias of token {token_id}", value, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
    if len({token_id for token_id, _ in pairs}) < len(pairs):
        raise RequestError("The logit bias names a token twice; give each token id once.")


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
