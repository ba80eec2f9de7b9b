"""What ends one request, what ends the engine, and that a model can be loaded again after each of them."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.commands import Cancel, LoadModel, Submit, UnloadModel, Watch
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import (
    BlockMap,
    EngineEvent,
    EngineState,
    FinishReason,
    RequestFailed,
    StepOutput,
)
from tests.fakes.loop_thread import PATIENCE_S, LoopThread, Progress, at_step
from tests.fakes.tiny_model import chat_gguf, greedy, tiny_chat_model, tiny_config

PROMPT = list(range(50, 90))
GOOD_STEPS = 3

Start = Callable[..., LoopThread]
Break = Callable[[Engine, pytest.MonkeyPatch], None]


class BrokenError(Exception):
    """What a step can fail with."""

    def __init__(self) -> None:
        super().__init__("the matrix unit caught fire.")


SENTENCE = "The engine stopped: the matrix unit caught fire. Load the model again to go on."


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Tracebacks of what is broken on purpose."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def failing(function: Callable[..., Any], good_calls: int = GOOD_STEPS) -> Callable[..., Any]:
    """Works a few times, then never again."""
    calls = 0

    def call(*args: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > good_calls:
            raise BrokenError
        return function(*args, **settings)

    return call


def break_schedule(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine._scheduler, "schedule", failing(engine._scheduler.schedule))


def break_allocation(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine._scheduler.pool, "allocate", failing(engine._scheduler.pool.allocate, 4))


def break_forward(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    decoder = engine._model.runner._decoder
    patch.setattr(decoder, "forward", failing(decoder.forward))


def break_logits(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    decoder = engine._model.runner._decoder
    patch.setattr(decoder, "logits", failing(decoder.logits))


def break_sample(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    sampler = engine._model.runner._sampler
    patch.setattr(sampler, "sample", failing(sampler.sample))


def break_complete(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine._scheduler, "complete", failing(engine._scheduler.complete))


def break_limit(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine._scheduler, "finish", failing(engine._scheduler.finish, 0))


BREAKS: dict[str, Break] = {
    "schedule": break_schedule,
    "allocate": break_allocation,
    "forward": break_forward,
    "logits": break_logits,
    "sample": break_sample,
    "complete": break_complete,
    "finish": break_limit,
}


class Loader:
    """Engines of which the first one is broken in some way."""

    def __init__(self, patch: pytest.MonkeyPatch, damage: Break) -> None:
        self._patch = patch
        self._damage = damage
        self.engines: list[Engine] = []

    def __call__(self, config: EngineConfig, on_progress: Progress) -> Engine:
        engine = Engine.load(config, on_progress)
        if not self.engines:
            self._damage(engine, self._patch)
        self.engines.append(engine)
        return engine


def assert_all_were_told_once(thread: LoopThread, names: str, sentence: str) -> None:
    failures = [event for event in thread.events if isinstance(event, RequestFailed)]
    assert {event.request_id for event in failures} == set(names) - set(thread.ends)
    assert len(failures) == len(set(names) - set(thread.ends)) > 0
    assert {event.message for event in failures} == {sentence}


def assert_loads_again(thread: LoopThread, gguf: Path, patch: pytest.MonkeyPatch) -> None:
    patch.undo()
    thread.on_event = lambda _event: None
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("again", PROMPT, 5)))
    assert thread.wait_for_end("again").new_tokens == 5
    assert thread.thread.is_alive()


@pytest.mark.parametrize("part", BREAKS)
def test_a_step_that_fails_in_any_part_ends_the_engine_not_the_loop(
    start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    loader = Loader(monkeypatch, BREAKS[part])
    thread = start(loader)
    # Two run, one waits, and one that only starts later is short.
    requests = [Submit(greedy(name, PROMPT, 5 if name == "d" else 30)) for name in "abcd"]
    thread.put(LoadModel(tiny_config(gguf, max_num_seqs=2)), *requests)
    status = thread.wait_for_state(EngineState.FAILED)
    assert status.message == SENTENCE
    assert "BrokenError" in status.details
    assert_all_were_told_once(thread, "abcd", SENTENCE)
    with pytest.raises(AttributeError):
        loader.engines[0]._model.runner.run  # noqa: B018 - its tensors went back
    assert_loads_again(thread, gguf, monkeypatch)


def test_a_text_that_fails_ends_one_request(start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        tokenizer = engine._model.tokenizer
        assert tokenizer is not None
        patch.setattr(tokenizer, "token_bytes", failing(tokenizer.token_bytes, 7))

    thread = start(Loader(monkeypatch, damage))
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("a", PROMPT, 30)))
    end = thread.wait_for_end("a")
    assert end.reason is FinishReason.ERROR
    assert end.message == "The answer's text could not be made: the matrix unit caught fire. Ask again."
    monkeypatch.undo()
    thread.put(Submit(greedy("b", PROMPT, 5)))
    assert thread.wait_for_end("b").new_tokens == 5
    assert EngineState.FAILED not in [status.state for status in thread.statuses]


def test_a_prompt_that_fails_ends_one_request(start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(engine, "_encode", failing(engine._encode, 1))

    thread = start(Loader(monkeypatch, damage))
    thread.put(LoadModel(tiny_config(gguf)), *(Submit(greedy(name, PROMPT, 5)) for name in "ab"))
    assert thread.wait_for_end("a").new_tokens == 5
    thread.wait_for(lambda seen: "b" in seen.failures)
    assert thread.failures["b"] == "The request could not be prepared: the matrix unit caught fire."
    assert EngineState.FAILED not in [status.state for status in thread.statuses]


def fail_for(kind: type[EngineEvent], good_events: int = 0) -> Callable[[EngineEvent], None]:
    """A sink that loses events of one kind after some."""
    seen = 0

    def on_event(event: EngineEvent) -> None:
        nonlocal seen
        if isinstance(event, kind):
            seen += 1
            if seen > good_events:
                raise BrokenError

    return on_event


@pytest.mark.parametrize("good_steps", [0, 3])
def test_a_sink_that_loses_a_step_ends_the_engine(
    start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch, good_steps: int
) -> None:
    """Its tokens are gone: nobody may take the rest for a whole answer."""
    thread = start()
    thread.on_event = fail_for(StepOutput, good_steps)
    thread.put(LoadModel(tiny_config(gguf)), *(Submit(greedy(name, PROMPT, 20)) for name in "ab"))
    assert thread.wait_for_state(EngineState.FAILED).message == SENTENCE
    assert_all_were_told_once(thread, "ab", SENTENCE)
    assert_loads_again(thread, gguf, monkeypatch)


def test_an_end_that_was_lost_is_told_as_a_failure(start: Start, gguf: Path) -> None:
    thread = start()
    thread.on_event = fail_for(StepOutput, 2)
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("a", PROMPT, 3)))
    thread.wait_for_state(EngineState.FAILED)
    assert thread.failures == {"a": SENTENCE}


def test_a_sink_that_loses_everything_does_not_stop_the_loop(
    start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = start()
    lost: list[EngineEvent] = []
    enough = threading.Event()

    def lose(event: EngineEvent) -> None:
        lost.append(event)
        if len(lost) > 20:
            enough.set()
        raise BrokenError

    thread.on_event = lose
    for _ in range(12):
        thread.put(LoadModel(tiny_config(gguf)), UnloadModel(), Submit(greedy("a", PROMPT, 2)))
    assert enough.wait(PATIENCE_S)
    assert_loads_again(thread, gguf, monkeypatch)


def break_cancel(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine._scheduler, "cancel", failing(engine._scheduler.cancel, 0))


def test_a_cancel_that_fails_ends_the_engine(start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = start(Loader(monkeypatch, break_cancel))
    at_step(thread, 3, Cancel("a"))
    thread.put(LoadModel(tiny_config(gguf)), *(Submit(greedy(name, PROMPT, 100)) for name in "ab"))
    assert thread.wait_for_state(EngineState.FAILED).message == SENTENCE
    assert_all_were_told_once(thread, "ab", SENTENCE)
    assert_loads_again(thread, gguf, monkeypatch)


def test_a_block_map_that_fails_ends_the_engine(start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(engine, "block_map", failing(engine.block_map, 1))

    thread = start(Loader(monkeypatch, damage))
    thread.put(LoadModel(tiny_config(gguf)), Watch(enabled=True))
    thread.wait_for(lambda seen: any(isinstance(event, BlockMap) for event in seen.events))
    thread.put(Submit(greedy("a", PROMPT, 5)))
    thread.wait_for_state(EngineState.FAILED)
    assert_loads_again(thread, gguf, monkeypatch)


def break_everything(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    break_forward(engine, patch)
    break_cancel(engine, patch)
    patch.setattr(engine, "close", failing(engine.close, 0))


def test_an_engine_that_cannot_even_be_closed_is_left_behind(
    start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = start(Loader(monkeypatch, break_everything))
    thread.put(LoadModel(tiny_config(gguf)), *(Submit(greedy(name, PROMPT, 20)) for name in "ab"))
    assert thread.wait_for_state(EngineState.FAILED).message == SENTENCE
    assert_all_were_told_once(thread, "ab", SENTENCE)
    assert_loads_again(thread, gguf, monkeypatch)


@pytest.mark.parametrize("how", ["unload", "load", "stop"])
def test_closing_an_engine_that_cannot_cancel_still_tells_everybody(
    start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    thread = start(Loader(monkeypatch, break_cancel))
    sentence = "The engine was closed, and this answer with it. Ask again."
    if how != "stop":
        at_step(thread, 3, UnloadModel() if how == "unload" else LoadModel(tiny_config(gguf)))
    thread.put(LoadModel(tiny_config(gguf)), *(Submit(greedy(name, PROMPT, 200)) for name in "ab"))
    if how == "stop":
        thread.wait_for(lambda seen: seen.steps)
        thread.stop()
    thread.wait_for(lambda seen: len(seen.failures) == 2)
    assert thread.failures == dict.fromkeys("ab", sentence)
    if how != "stop":
        assert_loads_again(thread, gguf, monkeypatch)


def test_books_that_do_not_add_up_are_found_when_nobody_asks(
    start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report 23: the check never kills the program, and says what does not add up."""

    def damage(engine: Engine, _patch: pytest.MonkeyPatch) -> None:
        finish = engine._scheduler.finish

        def leak(sequence: Any) -> None:
            sequence.block_table.pop()
            finish(sequence)

        engine._scheduler.finish = leak  # type: ignore[method-assign]

    thread = start(Loader(monkeypatch, damage), idle_check_s=0.0)
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("a", PROMPT, 3)))
    assert thread.wait_for_end("a").new_tokens == 3, "the answer was given before anybody looked"
    status = thread.wait_for_state(EngineState.FAILED)
    assert status.message.startswith("The engine stopped: the books of its KV cache do not add up (block ")
    assert status.message.endswith("tables hold it). Load the model again to go on.")
    assert "IntegrityError" in status.details
    assert_loads_again(thread, gguf, monkeypatch)


def test_books_are_checked_once_after_each_work(start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []

    def damage(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        check = engine.check_integrity

        def counted() -> None:
            checks.append(len(checks))
            check()

        patch.setattr(engine, "check_integrity", counted)

    thread = start(Loader(monkeypatch, damage), idle_check_s=0.0)
    thread.put(LoadModel(tiny_config(gguf)))
    thread.wait_for_state(EngineState.READY)
    for name in "ab":
        thread.put(Submit(greedy(name, PROMPT, 3)))
        thread.wait_for_end(name)
        thread.put(Cancel("nobody"), Cancel("nobody"), Watch(enabled=False))
    thread.stop()
    assert len(checks) in {1, 2}, "twice at most; a command that comes first puts a check off"
    assert EngineState.FAILED not in [status.state for status in thread.statuses]


def test_an_error_without_words_is_named(start: Start, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        def no_memory(*_args: Any) -> None:
            raise MemoryError

        patch.setattr(engine._model.runner._decoder, "forward", no_memory)

    thread = start(Loader(monkeypatch, damage))
    thread.put(LoadModel(tiny_config(gguf)), Submit(greedy("a", PROMPT, 3)))
    status = thread.wait_for_state(EngineState.FAILED)
    assert status.message == "The engine stopped: MemoryError. Load the model again to go on."


def test_closing_twice_is_closing_once(gguf: Path) -> None:
    engine = Engine.load(tiny_config(gguf))
    engine.submit(greedy("a", PROMPT, 5))
    engine.step()
    engine.close()
    engine.close()
    model = engine._model
    model.close()
    assert not hasattr(model, "runner")
