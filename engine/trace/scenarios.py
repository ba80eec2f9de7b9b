"""The scenarios that anyone can play: prompts, limits and the cache they run on."""

import json
import random
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

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

    def configure(
        self,
        config: EngineConfig,
        *,
        block_size: int | None = None,
        num_kv_blocks: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
    ) -> EngineConfig:
        """The scenario's engine; what the user gives wins."""
        return replace(
            config,
            block_size=_first(block_size, self.block_size),
            num_kv_blocks=_first(num_kv_blocks, self.num_kv_blocks),
            max_num_seqs=_first(max_num_seqs, self.max_num_seqs),
            max_num_batched_tokens=_first(max_num_batched_tokens, self.max_num_batched_tokens),
            max_model_len=self.max_model_len_tokens,
        )

    @property
    def max_model_len_tokens(self) -> int:
        """Holds every request with any usual tokenizer, so that a small cache is still worth starting."""
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


def _first(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


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
        requests=tuple(ScenarioRequest(**request) for request in _texts()["seed"]),
        block_size=256,
        num_kv_blocks=222,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
    )


def slots() -> Scenario:
    """Forty requests on eight slots: a freed slot is taken in the very next step."""
    rng = random.Random(0)
    prompts = _texts()["slot_prompts"]
    lengths = _capped_exponential(40, mean=24, cap=64, rng=rng)
    requests = tuple(
        ScenarioRequest(f"Request {index + 1}", prompts[index % len(prompts)], length)
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


def _texts() -> dict[str, Any]:
    """The prompts, kept apart from the code."""
    texts: dict[str, Any] = json.loads(files("engine.trace").joinpath("scenarios.json").read_text(encoding="utf-8"))
    return texts
