"""Another size of the cache under open requests, by the real engine and the real loop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache import kv_cache
from engine.engine import Engine
from engine.errors import CacheAllocationError, CacheTooSmallError, UsageError
from engine.events import FinishReason, RequestFinished
from tests.fakes.tiny_model import chat_gguf, greedy, tiny_chat_model, tiny_engine

PROMPT = list(range(50, 90))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def engine(gguf: Path) -> Iterator[Engine]:
    engine = tiny_engine(gguf)
    yield engine
    engine.close()


def run(engine: Engine) -> tuple[list[int], list[RequestFinished]]:
    tokens, ends = [], []
    while engine.has_work:
        output = engine.step()
        engine.check_integrity()
        tokens += [token for delta in output.deltas for token in delta.token_ids]
        ends += output.finished
    return tokens, ends


def start(engine: Engine, count: int, *, steps: int) -> list[int]:
    engine.submit(greedy("a", PROMPT, count))
    return [token for _ in range(steps) for delta in engine.step().deltas for token in delta.token_ids]


@pytest.mark.parametrize("num_blocks", [5, 100])
def test_an_answer_goes_on(gguf: Path, engine: Engine, num_blocks: int) -> None:
    undisturbed = tiny_engine(gguf)
    expected = start(undisturbed, 30, steps=30)
    said = start(engine, 30, steps=10)
    engine.resize_cache(num_blocks)
    engine.check_integrity()
    rest, (end,) = run(engine)
    assert said + rest == expected
    assert (end.reason, end.new_tokens, end.preemptions) == (FinishReason.LENGTH, 30, 0)
    assert engine.info.num_blocks == engine.block_map().blocks_total == num_blocks
    assert engine.info.max_model_len_tokens == min(num_blocks * 16, 256)


def test_a_larger_cache_lets_an_answer_grow(gguf: Path) -> None:
    engine = tiny_engine(gguf, num_kv_blocks=16, max_model_len=256)
    engine.resize_cache(4)
    engine.submit(greedy("a", PROMPT, 100))
    engine.step()
    engine.resize_cache(16)
    _, (end,) = run(engine)
    assert (end.reason, end.new_tokens) == (FinishReason.LENGTH, 100)


def test_the_context_never_grows_beyond_the_rotary_tables(tmp_path: Path) -> None:
    """A plan that was shortened to the cache has tables of that length."""
    path = chat_gguf(tiny_chat_model(max_position_embeddings=1024), tmp_path / "long.gguf")
    engine = tiny_engine(path, num_kv_blocks=32, max_model_len=1024)
    assert engine.info.max_model_len_tokens == 512
    engine.resize_cache(64)
    assert engine.info.max_model_len_tokens == 512
    engine.submit(greedy("a", [50] * 500, 100))
    _, (end,) = run(engine)
    assert (end.reason, end.new_tokens) == (FinishReason.LENGTH, 12)


def test_what_could_never_go_on_is_refused_and_nothing_changes(engine: Engine) -> None:
    said = start(engine, 30, steps=10)
    with pytest.raises(CacheTooSmallError, match="holds 48 tokens, but an open answer has 50 with its prompt"):
        engine.resize_cache(3)
    assert engine.info.num_blocks == 64
    assert engine.step().stats.decode_tokens == 1, "no recompute either"
    rest, (end,) = run(engine)
    assert len(said) + 1 + len(rest) == end.new_tokens == 30


@pytest.mark.parametrize("num_blocks", [0, -3])
def test_no_blocks_are_no_cache(engine: Engine, num_blocks: int) -> None:
    with pytest.raises(UsageError, match=f"{num_blocks} KV blocks were asked for; at least 1 is needed"):
        engine.resize_cache(num_blocks)


def test_the_same_size_keeps_what_is_computed(engine: Engine) -> None:
    start(engine, 30, steps=3)
    engine.resize_cache(64)
    assert engine.step().stats.decode_tokens == 1
    engine.cancel_all()


def test_without_memory_the_old_size_stays(engine: Engine, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = start(tiny_engine(gguf), 20, steps=20)
    said = start(engine, 20, steps=10)
    allocate = kv_cache._zeros_on_demand

    def full(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if shape[2] > 100:
            raise OSError("Cannot allocate memory")
        return allocate(shape, dtype)

    monkeypatch.setattr(kv_cache, "_zeros_on_demand", full)
    sentence = r"no memory for a KV cache of 200 blocks \(Cannot allocate memory\). It keeps its 64; ask for fewer"
    with pytest.raises(CacheAllocationError, match=sentence):
        engine.resize_cache(200)
    engine.check_integrity()
    assert engine.info.num_blocks == 64
    rest, _ = run(engine)
    assert said + rest == expected, "the old content is gone, and computed again"


def test_a_prefix_of_the_old_cache_is_not_found_in_the_new_one(engine: Engine) -> None:
    start(engine, 2, steps=2)
    engine.resize_cache(40)
    engine.submit(greedy("b", PROMPT, 2))
    _, (end,) = run(engine)
    assert end.cached_tokens == 0


@pytest.mark.parametrize("order", [(8, 64), (64, 8), (8, 12)])
def test_one_size_after_another(engine: Engine, gguf: Path, order: tuple[int, ...]) -> None:
    expected = start(tiny_engine(gguf), 25, steps=25)
    said: list[Any] = start(engine, 25, steps=5)
    for num_blocks in order:
        engine.resize_cache(num_blocks)
        said += [token for _ in range(3) for delta in engine.step().deltas for token in delta.token_ids]
    rest, (end,) = run(engine)
    assert said + rest == expected
    assert end.preemptions == 0
