"""What the engine says happened: frozen values, no torch, safe to hand to another thread."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class FinishReason(Enum):
    """Why an answer ended."""

    EOS = "eos"
    STOP = "stop"  # one of the request's stop strings
    LENGTH = "length"  # max_tokens or the context's end
    CAPACITY = "capacity"  # the whole cache is not enough for one more token
    CANCELLED = "cancelled"
    ERROR = "error"


class Phase(Enum):
    """What a sequence does in a step."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"


class WaitReason(Enum):
    """What keeps the next waiting request from starting."""

    SLOTS = "all slots are taken"
    TOKEN_BUDGET = "the step's token budget is used up"
    KV_BLOCKS = "too few KV blocks are free"
    SYSTEM_MEMORY = "the system is short of memory"


class EngineState(Enum):
    """Life of the engine behind a loop."""

    EMPTY = "empty"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class TokenLogprob(NamedTuple):
    """A token and the natural logarithm of its probability."""

    token_id: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """What the model itself thought of a place: before bias, penalties, temperature and filters.

    `top` holds as many of the most likely tokens as were asked for, best first; of equal ones the smallest id first.
    """

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of one request. `text` holds whole characters and may be empty while one is incomplete.

    `logprobs` has one entry for each token, text or not, where the request asks for them; else it is empty.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished:
    """The end of a request.

    Attributes:
        new_tokens: tokens computed, the end token included.
        cached_tokens: prompt tokens taken from the prefix cache.
        first_step: the step that computed the first new token; None if there was none.
        finish_step: the step that computed the last one.
        ttft_s: seconds from submit to the first token; None if there was none.
        decode_s: seconds from the first to the last token.
        preemptions: how often it lost its blocks to an older request.
        recomputed_tokens: tokens that were computed again because of that.
        message: the sentence for the user when reason is ERROR or CAPACITY.
        text: what was held back and follows the last delta: only of an answer that ended without a last token.
    """

    request_id: str
    reason: FinishReason
    prompt_tokens: int
    new_tokens: int
    cached_tokens: int
    first_step: int | None
    finish_step: int | None
    ttft_s: float | None
    decode_s: float
    preemptions: int = 0
    recomputed_tokens: int = 0
    message: str = ""
    text: str = ""

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed after the first token."""
        return (self.new_tokens - 1) / self.decode_s if self.new_tokens > 1 and self.decode_s > 0 else None


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One sequence in one step."""

    request_id: str
    phase: Phase
    tokens: int
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """One step in numbers, as they stand after its finishes.

    `blocks_free` may be allocated now; `blocks_cached` is the part of it that still holds a prefix.
    `blocks_used + blocks_free = blocks_total` (usable blocks; the padding block is not counted).
    """

    step: int
    time_s: float  # time.monotonic() at the step's end
    prefill_tokens: int
    decode_tokens: int
    running: int
    waiting: int
    preempted: int  # sequences preempted in this step
    blocks_total: int
    blocks_free: int
    blocks_used: int
    blocks_cached: int
    schedule_ms: float
    forward_ms: float
    sample_ms: float
    rows: tuple[SequenceRow, ...] = ()  # only while somebody watches
    recomputed_tokens: int = 0  # the part of prefill_tokens that was computed before a preemption already
    waits_for: WaitReason | None = None  # None while nobody waits

    @property
    def step_ms(self) -> float:
        """Host time of the whole step."""
        return self.schedule_ms + self.forward_ms + self.sample_ms


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Everything one step produced."""

    deltas: tuple[TextDelta, ...]
    finished: tuple[RequestFinished, ...]
    stats: StepStats


@dataclass(frozen=True, slots=True)
class BlockOwner:
    """The blocks that one sequence holds, in the order of its tokens. Shared blocks stand with every holder.

    `num_tokens` is how many tokens have their keys and values in these blocks; 0 where it is not known.
    """

    request_id: str
    block_ids: tuple[int, ...]
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Who holds each block. Ids run from 1 to `blocks_total`; 0 is the padding block."""

    blocks_total: int
    block_size_tokens: int
    owners: tuple[BlockOwner, ...]
    cached: tuple[int, ...]  # free, but still holding a prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is loaded and how it runs.

    `identity` is the same wherever token ids mean the same to the same model; empty for one without a tokenizer.
    """

    name: str
    architecture: str
    dtype: str
    device: str  # for people: "CPU, 2 threads" or the card's name
    attention: str  # for people: "gather + SDPA"
    num_parameters: int
    weights_bytes: int
    block_size_tokens: int
    block_bytes: int
    num_blocks: int  # usable
    max_model_len_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    load_s: float
    identity: str = ""
    policy: str = "mixed"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """State of the engine; `info` only while READY, `message` and `details` when FAILED.

    A READY with a message says why the cache was not resized.

    `exit_code` is what a command line would end with when FAILED: 2 for wrong input.
    """

    state: EngineState
    info: ModelInfo | None = None
    message: str = ""
    details: str = ""
    exit_code: int = 1


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far loading has come: a few words, and a fraction from 0 to 1."""

    stage: str
    fraction: float


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request that was refused, or ended by an error of its own."""

    request_id: str
    message: str


EngineEvent = StepOutput | RequestFinished | RequestFailed | BlockMap | EngineStatus | LoadProgress
"""A RequestFinished stands alone only after a cancel; those of a step come inside its StepOutput."""
