"""The engine's greedy answers against a lone transformers model, in float32, whatever shares the steps.

Floating-point sums depend on the batch, so answers are compared by teacher forcing: each token must be the reference's
most likely one on the same prefix, or lie within ten tolerances of it. Where every gap of the reference is clear, the
answers must be equal.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel

from engine.engine import Engine
from engine.events import FinishReason, RequestFinished
from tests.fakes.reference import CLEAR, FLOAT32_TOLERANCE, assert_greedy, greedy_answer
from tests.fakes.tiny_checkpoint import HEAD_DIM, ROPES, longrope
from tests.fakes.tiny_model import VOCAB, chat_folder, greedy, tiny_chat_model, tiny_engine

PROMPT_LENGTHS = (1, 15, 16, 17, 31, 33, 100)
NEW_TOKENS = 12
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "mha": {"num_key_value_heads": 4},
    "wide-heads": {"head_dim": 24},
    "linear-rope": {"rope_parameters": dict(ROPES["linear"])},
    "llama3-rope": {"rope_parameters": dict(ROPES["llama3"])},
    "yarn-rope": {"rope_parameters": dict(ROPES["yarn"])},
    "dynamic-rope": {"rope_parameters": dict(ROPES["dynamic"])},
    "mistral": {"family": "mistral"},
    "mistral-window": {"family": "mistral", "sliding_window": 24},
    "qwen2": {"family": "qwen2"},
    "qwen2-upper-window": {"family": "qwen2", "use_sliding_window": True, "sliding_window": 17, "max_window_layers": 1},
    "qwen3": {"family": "qwen3", "tie_word_embeddings": True},
}
QWEN_WINDOW = {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "whole-prompts": {"max_num_batched_tokens": 1024},
    "chunks": {"max_num_batched_tokens": 24, "max_num_seqs": 8},
    "three-slots": {"max_num_batched_tokens": 40, "max_num_seqs": 3},
    "blocks-of-32": {"block_size": 32, "max_num_batched_tokens": 24, "max_num_seqs": 8},
    "blocks-of-256": {"block_size": 256, "num_kv_blocks": 8, "max_num_batched_tokens": 24, "max_num_seqs": 8},
}


@dataclass(frozen=True)
class Case:
    reference: PreTrainedModel
    folder: Path


@pytest.fixture(scope="module", params=VARIANTS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    reference = tiny_chat_model(**VARIANTS[request.param])
    return Case(reference, chat_folder(reference, tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Case:
    reference = tiny_chat_model()
    return Case(reference, chat_folder(reference, tmp_path_factory.mktemp("model") / "tiny"))


def make_prompts(seed: int, *, shared: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    head = [rng.randrange(VOCAB) for _ in range(shared)]
    return [head + [rng.randrange(VOCAB) for _ in range(length)] for length in PROMPT_LENGTHS]


class Run:
    """Feeds requests to an engine and keeps what comes out."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.prompts: dict[str, list[int]] = {}
        self.answers: dict[str, list[int]] = {}
        self.ends: dict[str, RequestFinished] = {}

    def submit(self, prompts: list[list[int]], count: int = NEW_TOKENS) -> list[str]:
        names = [f"request {len(self.prompts) + index}" for index in range(len(prompts))]
        for name, prompt in zip(names, prompts, strict=True):
            self.prompts[name], self.answers[name] = prompt, []
            self.engine.submit(greedy(name, prompt, count))
        return names

    def step(self) -> None:
        output = self.engine.step()
        for delta in output.deltas:
            self.answers[delta.request_id] += delta.token_ids
        self.ends |= {end.request_id: end for end in output.finished}
        self.engine.check_integrity()

    def to_the_end(self) -> None:
        while self.engine.has_work:
            self.step()

    def check(self, reference: PreTrainedModel) -> None:
        for name, prompt in self.prompts.items():
            answer = self.answers[name]
            if answer:
                assert_greedy(reference, prompt, answer)


@pytest.fixture
def run(plain: Case) -> Iterator[Run]:
    """On a pool of 14 blocks, where three long answers cannot stand side by side."""
    engine = tiny_engine(plain.folder, num_kv_blocks=14, max_model_len=160, max_num_batched_tokens=64)
    yield Run(engine)
    engine.close()


@pytest.mark.parametrize("setting", SETTINGS)
def test_answers_are_those_of_a_lone_reference(case: Case, setting: str) -> None:
    run = Run(tiny_engine(case.folder, **SETTINGS[setting]))
    run.submit(make_prompts(1))
    run.to_the_end()
    assert {name: len(answer) for name, answer in run.answers.items()} == dict.fromkeys(run.prompts, NEW_TOKENS)
    run.check(case.reference)


def test_answers_are_equal_where_gaps_are_clear(case: Case) -> None:
    run = Run(tiny_engine(case.folder, max_num_batched_tokens=24, max_num_seqs=8))
    run.submit(make_prompts(2))
    run.to_the_end()
    num_clear = 0
    for name, prompt in run.prompts.items():
        expected, gaps = greedy_answer(case.reference, prompt, NEW_TOKENS)
        if min(gaps) > CLEAR * FLOAT32_TOLERANCE:
            num_clear += 1
            assert run.answers[name] == expected
    assert num_clear >= len(PROMPT_LENGTHS) - 2, "the comparison must not be empty"


@pytest.mark.parametrize("block_size", [16, 32])
def test_prefix_hits_change_nothing(case: Case, block_size: int) -> None:
    run = Run(tiny_engine(case.folder, block_size=block_size, max_num_batched_tokens=48))
    prompts = make_prompts(3, shared=70)
    run.submit(prompts[:1])
    run.to_the_end()
    names = run.submit(prompts)
    run.to_the_end()
    shared = 70 // block_size * block_size
    assert [run.ends[name].cached_tokens for name in names] == [shared] * len(names)
    run.check(case.reference)


@pytest.mark.parametrize(("original", "count"), [(256, 12), (64, 60)], ids=["short factors", "long factors"])
def test_longrope_goes_by_the_planned_context(tmp_path: Path, original: int, count: int) -> None:
    """Planned are 256 tokens. transformers changes over at the original context, so prompts begin beyond it."""
    rope = longrope(HEAD_DIM, original_max_position_embeddings=original)
    reference = tiny_chat_model(rope_parameters=rope)
    run = Run(tiny_engine(chat_folder(reference, tmp_path / "tiny"), max_num_batched_tokens=24, max_num_seqs=8))
    run.submit([[prompt[0]] * 64 + prompt for prompt in make_prompts(8)], count=count)
    run.to_the_end()
    run.check(reference)


@pytest.mark.parametrize("window", [1, 8, 15, 16, 17, 40])
@pytest.mark.parametrize("family", ["mistral", "qwen3"])
def test_a_window_of_any_size_over_blocks_and_chunks(family: str, window: int, tmp_path: Path) -> None:
    """53 tokens in chunks of 5 on blocks of 16: a window ends inside blocks, at their borders, and beyond a chunk."""
    changes = {"sliding_window": window} | ({} if family == "mistral" else QWEN_WINDOW)
    reference = tiny_chat_model(family, **changes)
    folder = chat_folder(reference, tmp_path / "tiny")
    run = Run(tiny_engine(folder, max_num_batched_tokens=5, max_num_seqs=4))
    rng = random.Random(9)
    prompt = [rng.randrange(VOCAB) for _ in range(53)]
    run.submit([prompt, prompt[:1]], count=14)
    run.to_the_end()
    run.submit([prompt, [*prompt, 5, 6]], count=14)  # now with a cached prefix
    run.to_the_end()
    run.check(reference)


def test_preemption_changes_nothing(run: Run, plain: Case) -> None:
    run.submit([prompt[:40] for prompt in make_prompts(4, shared=8)], count=50)
    run.to_the_end()
    assert sum(end.preemptions for end in run.ends.values()) > 0
    assert {len(answer) for answer in run.answers.values()} == {50}
    run.check(plain.reference)


def test_recompute_in_chunks_changes_nothing(plain: Case) -> None:
    engine = tiny_engine(
        plain.folder, num_kv_blocks=14, max_model_len=160, max_num_batched_tokens=16, prefix_caching=False
    )
    run = Run(engine)
    run.submit([prompt[:40] for prompt in make_prompts(5, shared=8)], count=50)
    run.to_the_end()
    assert sum(end.preemptions for end in run.ends.values()) > 0
    run.check(plain.reference)


def test_a_neighbour_cancelled_midway_changes_nothing(run: Run, plain: Case) -> None:
    names = run.submit([prompt[:60] for prompt in make_prompts(6, shared=16)], count=30)
    ended = []
    for name in names[::2]:
        run.step()
        run.step()
        end = run.engine.cancel(name)
        run.engine.check_integrity()
        if end is not None:
            ended.append(end)
    run.submit(make_prompts(7)[:3])
    run.to_the_end()
    assert [end.reason for end in ended] == [FinishReason.CANCELLED] * len(names[::2])
    assert {len(run.answers[name]) for name in names[1::2]} == {30}
    run.check(plain.reference)
