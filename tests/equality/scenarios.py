"""What an engine goes through: six ways in which the same answer can be computed. Each says whether it happened."""

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from engine.config import SchedulingPolicy
from tests.equality.families import Checkpoint
from tests.equality.session import Session
from tests.fakes.tiny_model import VOCAB, tiny_engine


@dataclass(frozen=True)
class Size:
    """How much is computed: lengths of prompts (some around the block size of 16), places to cut one that is found
    in the cache, and the length of answers.

    Every text is drawn from a seed; even seeds are scheduled with prompts first.
    """

    prompt_tokens: tuple[int, ...]
    cuts: tuple[int, ...]
    answer_tokens: int
    seeds: tuple[int, ...]


QUICK = Size(prompt_tokens=(1, 16, 17, 45), cuts=(15, 16, 33, 70), answer_tokens=6, seeds=(1,))
WHOLE = Size(
    prompt_tokens=(1, 2, 15, 16, 17, 31, 33, 48, 70, 100),
    cuts=(*range(1, 70, 4), 70),
    answer_tokens=20,
    seeds=(1, 2, 3, 4),
)


class Stage:
    """A checkpoint with prompts for it."""

    def __init__(self, checkpoint: Checkpoint, size: Size, seed: int) -> None:
        self.checkpoint = checkpoint
        self.size = size
        self._policy = SchedulingPolicy.MIXED if seed % 2 else SchedulingPolicy.PREFILL_FIRST
        self._random = random.Random(seed)

    def session(self, **changes: Any) -> Session:
        """A new engine with these settings."""
        dtype = self.checkpoint.family.dtype
        return Session(tiny_engine(self.checkpoint.folder, policy=self._policy, dtype=dtype, **changes))

    def text(self, num_tokens: int) -> list[int]:
        return [self._random.randrange(VOCAB) for _ in range(num_tokens)]

    def prompts(self) -> list[list[int]]:
        return [self.text(max(length, self._least)) for length in self.size.prompt_tokens]

    def prompt(self, num_tokens: int) -> list[int]:
        return self.text(num_tokens + self._least - 1)

    @property
    def _least(self) -> int:
        return self.checkpoint.family.min_prompt_tokens


def batching(stage: Stage) -> tuple[Session, bool]:
    """All prompts at once, whole; late ones join the decodes of the early ones."""
    session = stage.session(max_num_batched_tokens=1024)
    prompts = stage.prompts()
    session.submit(prompts[::2], stage.size.answer_tokens)
    session.step(2)
    session.submit(prompts[1::2], stage.size.answer_tokens)
    session.run()
    return session, session.largest_batch == len(prompts)


def chunked_prefill(stage: Stage) -> tuple[Session, bool]:
    """Prompts in pieces of at most 7 tokens, cut at other places for each of them, beside decodes."""
    session = stage.session(max_num_batched_tokens=7, max_num_seqs=3)
    names = session.submit(stage.prompts(), stage.size.answer_tokens)
    session.run()
    return session, max(map(session.num_prefill_steps, names)) >= 5


def prefix_hit(stage: Stage) -> tuple[Session, bool]:
    """Equal beginnings of all lengths, twins in one step, and a beginning whose blocks went to others meanwhile."""
    session = stage.session(max_num_batched_tokens=512, num_kv_blocks=16)
    count = stage.size.answer_tokens
    head, tail = stage.prompt(70), stage.prompt(20)
    session.submit([head], count)
    session.run()
    names = session.submit([head[:cut] + tail for cut in stage.size.cuts], count)
    session.run()
    names += session.submit([head, head], count)
    session.run()
    # Strangers that fill the cache one after the other, and the old beginning again while one runs.
    for _ in range(2):
        session.submit([stage.text(200)], 40)
        session.step(30)
    session.submit([head + tail], count)
    session.run()
    names += session.submit([head, head + tail], count)
    session.run()
    hits = [session.ends[name].cached_tokens for name in names]
    return session, sum(hit > 0 for hit in hits) >= 5


def preemption(stage: Stage) -> tuple[Session, bool]:
    """Answers that do not fit side by side: the newest is thrown out and computed anew."""
    prompts = [stage.prompt(length) for length in (30, 31, 27, 32, 29, 28, 30)]
    num_blocks = 2 * -(-len(prompts[0]) // 16) + 3  # two prompts, and three blocks for both to grow into
    session = stage.session(num_kv_blocks=num_blocks, max_model_len=len(prompts[0]) + 80, max_num_batched_tokens=64)
    session.submit(prompts, 50)
    session.run()
    return session, session.preemptions >= 3


def cancel(stage: Stage) -> tuple[Session, bool]:
    """Neighbours that vanish while they wait, are in their prompt, or answer; one is taken up again."""
    session = stage.session(max_num_batched_tokens=24, max_num_seqs=3)
    count = stage.size.answer_tokens
    prompts = [stage.prompt(length) for length in (20, 40, 60, 30, 25)]
    names = session.submit(prompts, count)
    session.step(2)
    cut = [names[1]]  # in its prompt
    session.cancel(cut[-1])
    session.step(3)
    cut += [names[0], names[4]]  # answers, waits
    for name in cut[1:]:
        session.cancel(name)
    again = session.submit([prompts[0] + session.answers[names[0]] + stage.text(9)], count)
    session.run()
    reasons = {session.ends[name].reason.value for name in cut}
    said = [len(session.answers[name]) for name in cut]
    found = session.ends[again[0]].cached_tokens
    return session, reasons == {"cancelled"} and said[0] == said[2] == 0 < said[1] and found >= 16


def resize(stage: Stage) -> tuple[Session, bool]:
    """A smaller and a larger cache under running answers, and a prefix that the old cache knew."""
    session = stage.session(max_num_batched_tokens=32, num_kv_blocks=30)
    count = max(stage.size.answer_tokens, 12)
    prompts = [stage.prompt(length) for length in (17, 40, 30)]
    session.submit(prompts, count)
    sizes = []
    for num_blocks in (16, 40, 20):
        session.step(5)
        sizes.append((session.engine.block_map().blocks_total, len(session.engine.block_map().owners)))
        session.engine.resize_cache(num_blocks)
        session.submit([prompts[1][:33] + stage.prompt(5)], count)
    session.run()
    return session, [size for size, _ in sizes] == [30, 16, 40] and all(running for _, running in sizes)


Scenario = Callable[[Stage], tuple[Session, bool]]
SCENARIOS: Mapping[str, Scenario] = {
    "batching": batching,
    "chunked prefill": chunked_prefill,
    "prefix hit": prefix_hit,
    "preemption": preemption,
    "cancel": cancel,
    "resize": resize,
}


def play(name: str, stage: Stage) -> tuple[Session, str]:
    """Play a scenario to its end and close the engine.

    Returns:
        What was said, and a word on what went wrong beside it: nothing of what the scenario is about happened, or the
        books do not add up. Empty when all is well.
    """
    session, happened = SCENARIOS[name](stage)
    with closing(session.engine):
        try:
            session.engine.check_integrity()
        except Exception as error:
            return session, f"the books do not add up: {error}"
        return session, "" if happened else "what it is about did not happen"
