"""What is measured: prompts of random token ids and exact answer lengths. No torch."""

import random
from dataclasses import dataclass

from engine.errors import UsageError
from engine.trace.scenarios import slots

_VOCABULARY = range(10, 10_000)  # ordinary tokens in every usual vocabulary


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that arrive at once. `repetitions` runs are made, each with fresh prompts.

    `new_tokens` is the length of every answer, or one for each; `num_slots` is how many may run at once.
    """

    name: str
    title: str
    num_sequences: int
    prompt_tokens: int
    new_tokens: int | tuple[int, ...]
    repetitions: int = 5
    num_slots: int = 16

    def prompts(self, repetition: int) -> list[list[int]]:
        """Prompts of this repetition: never the same twice, so that a prefix cache does not help."""
        rng = random.Random(1_000_003 * repetition + 101 * self.num_sequences + self.prompt_tokens)
        return [[rng.choice(_VOCABULARY) for _ in range(self.prompt_tokens)] for _ in range(self.num_sequences)]

    def lengths(self) -> list[int]:
        """Tokens to compute for each prompt."""
        if isinstance(self.new_tokens, tuple):
            return list(self.new_tokens)
        return [self.new_tokens] * self.num_sequences


SINGLE = Workload("single", "one stream", 1, 80, 128)
BATCH = Workload("batch", "batch of 16", 16, 80, 64)
SLOTS = Workload(
    "slots", "40 on 8 slots", 40, 30, tuple(request.max_tokens for request in slots().requests), num_slots=8
)
PREFILL = Workload("prefill", "16 prompts of 1,024 tokens", 16, 1024, 1)

WORKLOADS = {workload.name: workload for workload in (SINGLE, BATCH, SLOTS, PREFILL)}
COMPARISON = "cpu"
TOKEN_BUDGET = 2048  # of a step, unless another one is to be measured
SCHEDULER = "scheduler"  # no model at all


def choose_workload(name: str | None, *, random_weights: str | None) -> str:
    """The workload that was named; without a name the comparison, or one stream where there are no real weights.

    Raises:
        UsageError: an unknown name, or a comparison without real weights.
    """
    if name is None:
        return SINGLE.name if random_weights else COMPARISON
    known = (COMPARISON, *WORKLOADS, SCHEDULER)
    if name not in known:
        raise UsageError(f"There is no workload called {name!r}; choose {', '.join(known)}.")
    if name == COMPARISON and random_weights:
        raise UsageError(
            f"The workload {COMPARISON!r} compares real weights with transformers; leave out --random-weights."
        )
    return name
