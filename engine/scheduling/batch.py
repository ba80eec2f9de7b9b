"""What one step computes: a frozen plan handed from the scheduler to the runner and back."""

from dataclasses import dataclass
from typing import NamedTuple

from engine.events import Phase, WaitReason
from engine.scheduling.sequence import Sequence


# A frozen dataclass takes twice as long to build, and a step builds one for each sequence.
class ScheduledSequence(NamedTuple):
    """The part of one sequence that a step computes: tokens `start` to `stop` (exclusive).

    Attributes:
        sequence: its block table holds blocks for every token before `stop`.
        start: tokens before it are in the cache.
        num_tokens: how many the step computes.
        samples: whether the last of them is the sequence's last, so that a new token is sampled.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool

    @property
    def stop(self) -> int:
        """End of the part, exclusive."""
        return self.start + self.num_tokens

    @property
    def phase(self) -> Phase:
        """Decode computes one sampled token and samples the next; everything else, recompute included, is prefill."""
        decodes = self.samples and self.num_tokens == 1 and self.start >= self.sequence.num_prompt_tokens
        return Phase.DECODE if decodes else Phase.PREFILL


@dataclass(frozen=True, slots=True)
class Batch:
    """One step.

    Attributes:
        step: counts the batches that compute something, from 1.
        items: decodes first, then prefill chunks, each in order of arrival.
        prefill_tokens: tokens of the prefill chunks.
        decode_tokens: one for each decode.
        preempted: sequences that lost their blocks while this step was scheduled.
        recomputed_tokens: the part of `prefill_tokens` that was computed before a preemption already.
        waits_for: what keeps the next waiting sequence from starting; None while nobody waits.
    """

    step: int
    items: tuple[ScheduledSequence, ...]
    prefill_tokens: int
    decode_tokens: int
    preempted: tuple[Sequence, ...]
    recomputed_tokens: int = 0
    waits_for: WaitReason | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return self.prefill_tokens + self.decode_tokens
