"""One request inside the engine: its tokens, how far they are computed, and the blocks that hold them.

The scheduler owns every field that changes; the runner only reads. A sequence knows nothing of text.
"""

from dataclasses import dataclass, field
from enum import Enum

from engine.requests import SamplingParams


class SequenceState(Enum):
    """Where a sequence stands; a preempted one waits again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """A prompt and the tokens that follow it.

    Attributes:
        request_id: unique among the sequences of a scheduler.
        token_ids: prompt and output; `Scheduler.complete` appends.
        sampling: for the runner and for the length limit.
        num_prompt_tokens: how many of the first tokens are the prompt.
        state: set by the scheduler.
        max_length_tokens: prompt and output may not grow beyond it; set by `Scheduler.add`.
        num_computed: leading tokens whose keys and values are in the cache.
        block_table: blocks in the order of the tokens; may be longer than `num_computed` needs.
        num_registered_blocks: leading blocks that can be found as a prefix.
        num_cached_tokens: prompt tokens taken from the prefix cache when first admitted.
        preemptions: how often it lost its blocks to an older one.
        admissions: how often it was started, first or again.
        num_lost_tokens: the most that were computed when it lost its blocks, to an older one or with the whole pool.
        recomputed_tokens: tokens that were computed again after that.
        first_step: the step that computed the first new token.
        finish_step: the step that computed the last one so far.
    """

    request_id: str
    token_ids: list[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    num_prompt_tokens: int = field(init=False)
    state: SequenceState = field(default=SequenceState.WAITING, init=False)
    max_length_tokens: int = field(default=0, init=False)
    num_computed: int = field(default=0, init=False)
    block_table: list[int] = field(default_factory=list, init=False)
    num_registered_blocks: int = field(default=0, init=False)
    num_cached_tokens: int = field(default=0, init=False)
    preemptions: int = field(default=0, init=False)
    admissions: int = field(default=0, init=False)
    num_lost_tokens: int = field(default=0, init=False)
    recomputed_tokens: int = field(default=0, init=False)
    first_step: int | None = field(default=None, init=False)
    finish_step: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        assert self.token_ids, "a sequence needs a token"
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return len(self.token_ids)

    @property
    def num_remaining(self) -> int:
        """Tokens still to compute before the next one can be sampled."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_new_tokens(self) -> int:
        """Tokens sampled so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def new_token_ids(self) -> list[int]:
        """Tokens sampled so far."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_decoding(self) -> bool:
        """Whether one token brings it up to date and that token was sampled."""
        num_computed = self.num_computed
        return num_computed >= self.num_prompt_tokens and len(self.token_ids) - num_computed == 1
