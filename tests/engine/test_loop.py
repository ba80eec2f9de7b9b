"""The loop with a real engine on a tiny model, in a plain thread."""

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.commands import Cancel, LoadModel, ResizeCache, Stop, Submit, UnloadModel, Watch
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import (
    BlockMap,
    EngineState,
    FinishReason,
    LoadProgress,
    RequestFinished,
)
from engine.requests import Message, Request, SamplingParams
from engine.runner.model_runner import RunResult
from engine.scheduling.batch import Batch
from tests.fakes.loop_thread import PATIENCE_S, LoopThread, Progress, at_step
from tests.fakes.tiny_model import chat_gguf, greedy, tiny_chat_model, tiny_config

PROMPT = list(range(50, 90))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def ready(start: Callable[..., LoopThread], gguf: Path) -> LoopThread:
    thread = start()
    thread.put(LoadModel(tiny_config(gguf)))
    thread.wait_for_state(EngineState.READY)
    return thread


def tensors_of(root: object) -> list[Tensor]:
    """Every tensor that can be reached from an object, through attributes, slots, containers and closures."""
    found, seen, stack = [], {id(root)}, [root]
    while stack:
        each = stack.pop()
        if isinstance(each, Tensor):
            found.append(each)
            continue
        referents = each.__closure__ or () if isinstance(each, FunctionType) else gc.get_referents(each)
        for other in referents:
            if id(other) not in seen and not isinstance(other, type | ModuleType):
                seen.add(id(other))
                stack.append(other)
    return found


# --- who owns what ---


def test_the_loops_thread_makes_every_tensor_and_keeps_no_gradients(ready: LoopThread) -> None:
    held: list[list[Tensor]] = []
    ready.on_event = lambda event: held.append(tensors_of(ready.loop._engine)) if not held else None
    ready.owned.grad_modes.clear()
    ready.put(Submit(greedy("a", PROMPT, 5)))
    ready.wait_for_end("a")
    (tensors,) = held
    model = tiny_chat_model()
    assert sum(tensor.numel() for tensor in tensors) >= model.num_parameters(), "weights and cache are among them"
    assert {tensor.untyped_storage().data_ptr() for tensor in tensors} <= ready.owned.pointers
    assert not any(tensor.requires_grad for tensor in tensors)
    assert ready.owned.grad_modes == {(False, True)}, "a step runs in inference mode, entered in its own thread"
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_a_tensor_of_another_thread_would_be_noticed(ready: LoopThread) -> None:
    foreign = torch.ones(3)
    assert foreign.untyped_storage().data_ptr() not in ready.owned.pointers
    assert tensors_of({"deep": [(foreign, lambda: foreign)]}) == [foreign]


# --- requests ---


def test_a_conversation_is_answered_in_text(ready: LoopThread) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    ready.put(Submit(Request(request_id="a", messages=(Message("user", "Hello"),), sampling=sampling)))
    end = ready.wait_for_end("a")
    assert (end.reason, end.new_tokens) == (FinishReason.LENGTH, 8)
    assert len(ready.tokens("a")) == 8
    assert [step.stats.step for step in ready.steps] == list(range(1, 9))


def test_requests_share_steps(ready: LoopThread) -> None:
    ready.put(*(Submit(greedy(name, PROMPT[index:], 10)) for index, name in enumerate("abc")))
    for name in "abc":
        assert ready.wait_for_end(name).new_tokens == 10
    assert max(step.stats.decode_tokens for step in ready.steps) >= 2


def test_a_refused_request_leaves_the_others(ready: LoopThread) -> None:
    ready.put(Submit(greedy("a", PROMPT, 10)), Submit(greedy("long", PROMPT * 10, 10)), Submit(greedy("a", PROMPT, 1)))
    assert ready.wait_for_end("a").new_tokens == 10
    ready.wait_for(lambda seen: len(seen.failures) == 2)
    assert ready.failures["long"].startswith("The prompt has 400 tokens, but the context of the model allows 256")
    assert "already" in ready.failures["a"]


def test_without_a_model_a_request_fails_with_a_sentence(start: Callable[..., LoopThread]) -> None:
    thread = start()
    thread.put(Submit(greedy("a", PROMPT, 1)), Cancel("a"))
    thread.wait_for(lambda seen: seen.failures)
    assert thread.failures == {"a": "No model is loaded. Choose one first."}


def test_a_cancel_ends_one_request_once(ready: LoopThread) -> None:
    at_step(ready, 3, Cancel("a"), Cancel("a"), Cancel("nobody"))
    ready.put(Submit(greedy("a", PROMPT, 200)), Submit(greedy("b", PROMPT[::-1], 20)))
    end = ready.wait_for_end("a")
    assert end.reason is FinishReason.CANCELLED
    assert end.new_tokens == len(ready.tokens("a")) < 200
    assert ready.wait_for_end("b").new_tokens == 20
    ends = [event for event in ready.events if isinstance(event, RequestFinished)]
    assert [each.request_id for each in ends] == ["a"]


def test_rows_and_block_maps_come_while_somebody_watches(ready: LoopThread) -> None:
    ready.put(Watch(enabled=True), Submit(greedy("a", PROMPT, 5)))
    ready.wait_for_end("a")
    ready.wait_for(lambda seen: any(isinstance(event, BlockMap) for event in seen.events))
    assert all(step.stats.rows for step in ready.steps)
    num_steps = len(ready.steps)
    ready.put(Watch(enabled=False), Submit(greedy("b", PROMPT, 5)))
    ready.wait_for_end("b")
    assert not any(step.stats.rows for step in ready.steps[num_steps:])


# --- loading, unloading, stopping ---


def test_a_request_sent_behind_the_load_is_served(start: Callable[..., LoopThread], gguf: Path) -> None:
    thread = start()
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("a", PROMPT, 3)))
    assert thread.wait_for_end("a").new_tokens == 3
    assert [status.state for status in thread.statuses] == [EngineState.LOADING, EngineState.READY]
    info = thread.statuses[-1].info
    assert info is not None
    assert info.name == "tiny"


def test_the_cache_is_resized_between_two_steps(ready: LoopThread) -> None:
    ready.put(Submit(greedy("a", PROMPT, 100)), Submit(greedy("b", PROMPT, 20)))
    ready.wait_for(lambda seen: len(seen.steps) > 3)
    ready.put(ResizeCache(20), ResizeCache(2))
    status = ready.wait_for(lambda seen: seen.statuses[-1].message and seen.statuses[-1])
    assert "Keep at least" in status.message
    assert [each.info.num_blocks for each in ready.statuses if each.info is not None] == [64, 20, 20]
    assert (ready.wait_for_end("a").new_tokens, ready.wait_for_end("b").new_tokens) == (100, 20)
    assert ready.steps[-1].stats.blocks_total == 20
    ready.put(UnloadModel(), ResizeCache(30))
    assert ready.wait_for_state(EngineState.EMPTY)


def test_unloading_ends_what_is_open_and_gives_the_memory_back(ready: LoopThread) -> None:
    engine = ready.loop._engine
    assert isinstance(engine, Engine)
    held = [weakref.ref(engine._model.runner._cache), weakref.ref(engine._model.runner._decoder)]
    del engine
    at_step(ready, 2, UnloadModel())
    ready.put(Submit(greedy("a", PROMPT, 200)), Submit(greedy("b", PROMPT, 200)))
    ready.wait_for_state(EngineState.EMPTY)
    assert {ready.ends[name].reason for name in "ab"} == {FinishReason.CANCELLED}
    assert [reference() for reference in held] == [None, None]


def test_loading_another_model_closes_the_first(ready: LoopThread, gguf: Path) -> None:
    at_step(ready, 3, LoadModel(tiny_config(gguf, num_kv_blocks=20)), Submit(greedy("b", PROMPT, 2)))
    ready.put(Submit(greedy("a", PROMPT, 200)))
    assert ready.wait_for_end("a").reason is FinishReason.CANCELLED
    assert ready.wait_for_end("b").new_tokens == 2
    assert ready.steps[-1].stats.blocks_total == 20


def test_a_request_behind_two_loads_is_served_by_the_second(start: Callable[..., LoopThread], gguf: Path) -> None:
    """The second load stops the first, and what came after it must not overtake it."""
    thread = start()
    sent = []

    def on_event(event: object) -> None:
        if isinstance(event, LoadProgress) and not sent:
            sent.append(event)
            thread.put(LoadModel(tiny_config(gguf, num_kv_blocks=20)), Submit(greedy("a", PROMPT, 3)))

    thread.on_event = on_event
    thread.put(LoadModel(tiny_config(gguf)))
    assert thread.wait_for_end("a").new_tokens == 3
    assert thread.failures == {}
    assert thread.steps[-1].stats.blocks_total == 20


def damaged(gguf: Path, folder: Path) -> dict[str, tuple[EngineConfig, str]]:
    """Configurations that cannot be loaded, and how the sentence begins."""
    cut, foreign = folder / "cut.gguf", folder / "foreign.gguf"
    cut.write_bytes(gguf.read_bytes()[:-5000])
    foreign.write_text("This is a letter, not a model.")
    return {
        "missing": (tiny_config(folder / "nothing.gguf"), "There is no file or folder"),
        "cut": (tiny_config(cut), f"The GGUF file {cut}"),
        "foreign": (tiny_config(foreign), f"{foreign} "),
        "dtype": (tiny_config(gguf, dtype="int4"), "The dtype 'int4' is unknown"),
        "device": (tiny_config(gguf, device="cuda"), "The device 'cuda' was asked for"),
        "small": (tiny_config(gguf, num_kv_blocks=1), ""),
    }


@pytest.mark.parametrize("kind", ["missing", "cut", "foreign", "dtype", "device", "small"])
def test_a_failed_load_is_a_sentence_and_the_next_one_works(
    start: Callable[..., LoopThread], gguf: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "device" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    config, beginning = damaged(gguf, tmp_path)[kind]
    thread = start()
    thread.put(LoadModel(config))
    status = thread.wait_for_state(EngineState.FAILED)
    assert status.message.startswith(beginning)
    assert status.message.endswith(".")
    assert status.details == "", "a mistake of the user needs no traceback"
    assert status.exit_code == (3 if kind == "small" else 2)
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("a", PROMPT, 2)))
    assert thread.wait_for_end("a").new_tokens == 2


def test_a_load_that_stumbles_is_told_with_details(start: Callable[..., LoopThread]) -> None:
    def stumble(_config: EngineConfig, _on_progress: Progress) -> Engine:
        raise MemoryError("no room")

    thread = start(stumble)
    thread.put(LoadModel(EngineConfig(model="x")))
    status = thread.wait_for_state(EngineState.FAILED)
    assert status.message == "The model could not be loaded: no room."
    assert "MemoryError" in status.details
    assert status.exit_code == 1


class BrokenRunner:
    """Computes some steps, then breaks."""

    def __init__(self, engine: Engine, good_steps: int) -> None:
        self._runner = engine._model.runner
        self._good_steps = good_steps

    def run(self, batch: Batch) -> RunResult:
        if batch.step > self._good_steps:
            raise RuntimeError("the matrix unit caught fire")
        return self._runner.run(batch)


def test_a_broken_step_tells_everybody_and_the_model_can_be_loaded_again(
    start: Callable[..., LoopThread], gguf: Path
) -> None:
    engines: list[weakref.ref[Engine]] = []
    caches: list[weakref.ref[Any]] = []

    def load(config: EngineConfig, on_progress: Progress) -> Engine:
        engine = Engine.load(config, on_progress)
        caches.append(weakref.ref(engine._model.runner._cache))
        if not engines:
            engine._model.runner = BrokenRunner(engine, 3)  # type: ignore[assignment]
        engines.append(weakref.ref(engine))
        return engine

    logging.disable()  # pytest keeps the records, and with them the traceback and all that it holds
    try:
        thread = start(load)
        requests = [Submit(greedy(name, PROMPT, 50)) for name in "abc"]
        thread.put(LoadModel(tiny_config(gguf, max_num_seqs=2)), *requests)
        status = thread.wait_for_state(EngineState.FAILED)
    finally:
        logging.disable(logging.NOTSET)
    sentence = "The engine stopped: the matrix unit caught fire. Load the model again to go on."
    assert status.message == sentence
    assert "RuntimeError" in status.details
    assert thread.failures == dict.fromkeys("abc", sentence)
    assert thread.ends == {}
    thread.put(Submit(greedy("d", PROMPT, 2)))
    thread.wait_for(lambda seen: "d" in seen.failures)
    assert thread.failures["d"] == "No model is loaded. Choose one first."
    assert [reference() for reference in (engines[0], caches[0])] == [None, None], "the memory went back"
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("e", PROMPT, 5)))
    assert thread.wait_for_end("e").new_tokens == 5


@pytest.mark.parametrize("state", ["empty", "ready", "loading", "answering"])
def test_stop_ends_the_loop_in_every_state(start: Callable[..., LoopThread], gguf: Path, state: str) -> None:
    thread = start()
    config = tiny_config(gguf, max_num_seqs=1)
    if state == "loading":
        thread.on_event = lambda event: thread.put(Stop()) if isinstance(event, LoadProgress) else None
        thread.put(LoadModel(config))
    elif state != "empty":
        thread.put(LoadModel(config))
        thread.wait_for_state(EngineState.READY)
    if state == "answering":
        at_step(thread, 2, Stop())
        thread.put(Submit(greedy("a", PROMPT, 200)), Submit(greedy("waits", PROMPT, 200)))
    if state in {"loading", "answering"}:
        thread.thread.join(PATIENCE_S)
    thread.stop()
    assert thread.loop._engine is None
    assert {end.reason for end in thread.ends.values()} <= {FinishReason.CANCELLED}
    assert set(thread.ends) == ({"a", "waits"} if state == "answering" else set())
    assert (EngineState.READY in [status.state for status in thread.statuses]) == (state in {"ready", "answering"})
