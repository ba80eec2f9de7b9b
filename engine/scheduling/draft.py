"""A batch in the making: what one step has been given so far. Decides nothing."""

from engine.events import Phase, WaitReason
from engine.scheduling.batch import Batch, ScheduledSequence
from engine.scheduling.sequence import Sequence


class Draft:
    """What the scheduler has decided for one step.

    Attributes:
        budget_tokens: what is left of the step.
        reserved_blocks: free blocks that the running sequences may soon grow into; None until somebody wants to know.
        decodes, prefills, preempted: what was decided.
        waits_for: what keeps the next waiting sequence from starting.
    """

    __slots__ = (
        "budget_tokens", "decodes", "preempted", "prefills", "recomputed_tokens", "reserved_blocks", "waits_for",
    )  # fmt: skip

    def __init__(self, budget_tokens: int) -> None:
        self.budget_tokens = budget_tokens
        self.reserved_blocks: int | None = None
        self.decodes: list[ScheduledSequence] = []
        self.prefills: list[ScheduledSequence] = []
        self.preempted: list[Sequence] = []
        self.recomputed_tokens = 0
        self.waits_for: WaitReason | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the step computes nothing yet."""
        return not self.decodes and not self.prefills

    def prefill(self, sequence: Sequence, num_tokens: int) -> None:
        """Compute this many of its known tokens."""
        start = sequence.num_computed
        stop = start + num_tokens
        item = ScheduledSequence(sequence, start, num_tokens, stop == len(sequence.token_ids))
        # The last token of a recompute is a decode again.
        (self.decodes if item.phase is Phase.DECODE else self.prefills).append(item)
        self.budget_tokens -= num_tokens
        recomputed_tokens = min(stop, sequence.num_lost_tokens) - start
        if recomputed_tokens > 0:
            sequence.recomputed_tokens += recomputed_tokens
            self.recomputed_tokens += recomputed_tokens

    def to_batch(self, step: int) -> Batch:
        """The finished plan."""
        return Batch(
            step=step,
            items=(*self.decodes, *self.prefills),
            prefill_tokens=sum(item.num_tokens for item in self.prefills),
            decode_tokens=len(self.decodes),
            preempted=tuple(self.preempted),
            recomputed_tokens=self.recomputed_tokens,
            waits_for=self.waits_for,
        )
