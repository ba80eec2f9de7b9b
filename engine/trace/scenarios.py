"""The scenarios that anyone can play: prompts, limits and the cache they run on."""

import random
from dataclasses import dataclass, replace

from engine.config import EngineConfig
from engine.errors import UsageError
from engine.requests import Message, Request, SamplingParams


@dataclass(frozen=True, slots=True)
class ScenarioRequest:
    """One request: its name, what the user says, and exactly how many tokens are computed."""

    name: str
    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A list of requests that all arrive at once, and the engine they are meant for."""

    name: str
    title: str
    requests: tuple[ScenarioRequest, ...]
    block_size: int
    num_kv_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int

    def configure(self, config: EngineConfig, *, block_size: int | None, num_kv_blocks: int | None) -> EngineConfig:
        """The scenario's engine; what the user gives wins."""
        return replace(
            config,
            block_size=block_size or self.block_size,
            num_kv_blocks=num_kv_blocks or self.num_kv_blocks,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len_tokens,
        )

    @property
    def max_model_len_tokens(self) -> int:
        """A context that holds every request with any usual tokenizer, so that a small cache is still worth starting."""
        return 256

    def to_requests(self) -> tuple[Request, ...]:
        """Greedy requests whose ids are the names; end tokens are ignored, so that the lengths are exact."""
        return tuple(
            Request(
                request_id=request.name,
                messages=(Message("user", request.prompt),),
                sampling=SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=True),
            )
            for request in self.requests
        )


def scenario(name: str) -> Scenario:
    """The scenario of this name; raises UsageError naming all."""
    found = {"slots": slots, "seed": seed}.get(name)
    if found is None:
        raise UsageError(f"There is no scenario called {name!r}; choose slots or seed.")
    return found()


def seed() -> Scenario:
    """Ten requests at once on 222 blocks of 256 tokens: they end one by one, and each gives its block back."""
    return Scenario(
        name="seed",
        title="Ten requests, one prefill, and blocks that come back one by one",
        requests=_SEED_REQUESTS,
        block_size=256,
        num_kv_blocks=222,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
    )


def slots() -> Scenario:
    """Forty requests on eight slots: a freed slot is taken in the very next step."""
    rng = random.Random(0)  # noqa: S311 - a fixed workload
    lengths = _capped_exponential(40, mean=24, cap=64, rng=rng)
    requests = tuple(
        ScenarioRequest(f"Request {index + 1}", _SLOT_PROMPTS[index % len(_SLOT_PROMPTS)], length)
        for index, length in enumerate(lengths)
    )
    return Scenario(
        name="slots",
        title="Forty requests on eight slots",
        requests=requests,
        block_size=16,
        num_kv_blocks=256,
        max_num_seqs=8,
        max_num_batched_tokens=1024,
    )


def _capped_exponential(count: int, *, mean: int, cap: int, rng: random.Random) -> list[int]:
    """Answer lengths as in public benchmarks of continuous batching: most short, a few long."""
    lengths: list[int] = []
    while len(lengths) < count:
        length = round(rng.expovariate(1 / mean))
        if 1 <= length <= cap:
            lengths.append(length)
    return lengths


_SLOT_PROMPTS = (
    "Name a river in Europe and say where it ends.",
    "What is a cache, in one sentence?",
    "Give me a title for a story about a lighthouse.",
    "Why is the sky blue?",
    "Write one line of a poem about rain.",
    "How many legs does a spider have?",
    "Translate 'good morning' into French.",
    "What should I cook with rice and eggs?",
)

_SEED_REQUESTS = (
    ScenarioRequest("Short answer", "What is the capital of France? Answer in one word.", 5),
    ScenarioRequest(
        "Yes or no",
        "Is a whale a fish? Say yes or no first, and then give the reason in a few plain words that need no biology.",
        8,
    ),
    ScenarioRequest(
        "Definition",
        "Define the word 'cache' as it is used in computing. Use one short sentence, no technical terms, and an example "
        "from a kitchen that a child would understand.",
        12,
    ),
    ScenarioRequest(
        "Translation",
        "Translate the following notice into Spanish and keep its polite tone: The library opens at nine and closes at "
        "six. Please return your books before Friday, "
        "and leave your bags in the hall.",
        16,
    ),
    ScenarioRequest(
        "Haiku",
        "Write a haiku about a graphics card that has run out of memory at midnight, while three other programs sleep "
        "on the pages that it needs. Keep to five, seven and five syllables, and do not use the word memory itself.",
        24,
    ),
    ScenarioRequest(
        "List",
        "List five things that a traveller should pack for a week in the mountains in autumn. Give one reason for each, "
        "and begin with the one that people most often forget. Leave out clothes, food and anything that needs a battery or a cable to be useful.",
        32,
    ),
    ScenarioRequest(
        "Explanation",
        "Explain to a curious twelve-year-old why the moon seems to change its shape in the course of a month. Use a "
        "lamp, an orange and a dark room, and say where the child has to stand. Finish with a question that "
        "the child can answer by looking out of the window.",
        40,
    ),
    ScenarioRequest(
        "Recipe",
        "Give me a simple recipe for a soup with lentils, carrots and onions for four people. Put the steps in the right "
        "order, name the amounts in grams, and say what can be prepared on the day before. Close with "
        "one way to use what is left over on the next day.",
        48,
    ),
    ScenarioRequest(
        "Story",
        "Tell the beginning of a story in which an old lighthouse keeper finds a letter in a bottle. The letter is in his "
        "own hand, it is dated ten years from now, and it asks him to leave the lamp dark tonight. Do not explain "
        "the mystery, and stop before he decides.",
        56,
    ),
    ScenarioRequest(
        "Essay",
        "Write an essay on why sharing a scarce resource in small pieces serves more people than handing it out whole. "
        "Begin with an example from everyday life, then turn to the memory of a computer, and end with a doubt. "
        "Write for readers who have never opened a computer, and avoid lists. Give it a title, and let the last sentence return to the first.",
        64,
    ),
)
