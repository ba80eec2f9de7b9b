"""The loop around an engine: takes commands from a queue, steps, gives every event to a sink.

It owns the engine from creation to close, so whoever calls `run` owns every tensor. It knows no Qt; the window, the
command line and the tests all run this one loop.

What can go wrong with one request (its prompt, its text) ends that request, and the engine sees to that. Whatever
escapes from the engine, in any part of a step, in a cancel, in a check of its books, or from the sink, which then has
lost an event, means that it is broken: every open request ends with a message, the engine is closed, and a model can be
loaded again. Only Stop ends the loop.
"""

import logging
import time
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from engine.cache.block_pool import IntegrityError
from engine.commands import Cancel, Command, LoadModel, ResizeCache, Stop, Submit, UnloadModel, Watch
from engine.config import EngineConfig
from engine.errors import EngineError, LoadCancelledError, reason
from engine.events import (
    BlockMap,
    EngineEvent,
    EngineState,
    EngineStatus,
    LoadProgress,
    ModelInfo,
    RequestFailed,
    RequestFinished,
    StepOutput,
)
from engine.requests import Request
from engine.torch_libraries import open_torch_libraries

log = logging.getLogger(__name__)

BLOCK_MAP_PERIOD_S = 0.2
IDLE_CHECK_S = 2.0  # the books are checked after this long without work, so that a check never delays an answer


class EngineLike(Protocol):
    """What the loop needs of an engine."""

    @property
    def info(self) -> ModelInfo:
        """What is loaded."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""

    def submit(self, request: Request) -> None:
        """Take a request; raises RequestError when it can never be served."""

    def cancel(self, request_id: str) -> RequestFinished | None:
        """End a request now; None when there is none of that id."""

    def cancel_all(self) -> tuple[RequestFinished, ...]:
        """End every open request."""

    def step(self) -> StepOutput:
        """Compute one batch."""

    def resize_cache(self, num_blocks: int) -> None:
        """Go on with another number of blocks; raises RefusalError when that cannot be."""

    def block_map(self) -> BlockMap:
        """Who holds each block now."""

    def set_watched(self, *, enabled: bool) -> None:
        """Whether steps carry a row per sequence."""

    def check_integrity(self) -> None:
        """Recompute every count from scratch; raises IntegrityError when one does not add up."""

    def close(self) -> None:
        """Give everything back."""


EngineFactory = Callable[[EngineConfig, Callable[[LoadProgress], None]], EngineLike]


def _load_engine(config: EngineConfig, on_progress: Callable[[LoadProgress], None]) -> EngineLike:
    # torch is imported in the loop's own thread, and only when a model is loaded.
    open_torch_libraries()
    from engine.engine import Engine

    return Engine.load(config, on_progress)


class EngineLoop:
    """Runs one engine at a time.

    Args:
        commands: filled by any thread.
        sink: receives every event, in order, in the loop's thread; it must not block.
        load_engine: builds an engine and calls the progress function between stages; None takes the real one.
        idle_check_s: how long nothing is asked before the engine's books are checked, once.
    """

    def __init__(
        self,
        commands: "SimpleQueue[Command]",
        sink: Callable[[EngineEvent], None],
        load_engine: EngineFactory | None = None,
        *,
        idle_check_s: float = IDLE_CHECK_S,
    ) -> None:
        self._commands = commands
        self._sink = sink
        self._load_engine = load_engine or _load_engine
        self._engine: EngineLike | None = None
        self._idle_check_s = idle_check_s
        self._checked = True  # whether nothing was computed since the last check
        self._watched = False
        self._block_map_due_s = 0.0
        self._stopped = False
        self._deferred: list[Command] = []  # arrived while a model was loading
        self._open: dict[str, None] = {}  # request ids without an end, oldest first; known even of a broken engine

    def run(self) -> None:
        """Serve commands until Stop. Never raises for a failure of a request or of the engine."""
        try:
            while not self._stopped:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        """Commands, then one step."""
        try:
            self._take_commands()
            if self._engine is not None and self._engine.has_work and not self._stopped:
                self._step(self._engine)
        except Exception as error:
            log.exception("the engine broke")
            self._fail(error, traceback.format_exc())

    def _take_commands(self) -> None:
        """Apply what has arrived; wait only when there is nothing to compute."""
        while self._deferred and not self._stopped:
            self._apply(self._deferred.pop(0))
        idle = self._engine is None or not self._engine.has_work
        if idle and not self._stopped:
            self._send_block_map()
            self._apply(self._wait_for_command())
        while not self._stopped and not self._deferred:  # what a load put off comes before what arrived after it
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            self._apply(command)

    def _wait_for_command(self) -> Command:
        """The next command; when none comes for a while, the time is used to check the engine's books."""
        if self._engine is not None and not self._checked:
            try:
                return self._commands.get(timeout=self._idle_check_s)
            except Empty:
                self._checked = True
                self._engine.check_integrity()
        return self._commands.get()

    def _apply(self, command: Command) -> None:
        match command:
            case LoadModel(config):
                self._load(config)
            case UnloadModel():
                self._close()
                self._sink(EngineStatus(EngineState.EMPTY))
            case Submit(request):
                self._submit(request)
            case Cancel(request_id):
                self._cancel(request_id)
            case ResizeCache(num_blocks):
                if self._engine is not None:
                    self._resize_cache(self._engine, num_blocks)
            case Watch(enabled):
                self._watched = enabled
                self._block_map_due_s = 0.0
                if self._engine is not None:
                    self._engine.set_watched(enabled=enabled)
            case Stop():
                self._stopped = True

    def _load(self, config: EngineConfig) -> None:
        self._close()
        self._sink(EngineStatus(EngineState.LOADING))
        try:
            self._engine = self._load_engine(config, self._report_progress)
        except LoadCancelledError as error:
            self._sink(EngineStatus(EngineState.EMPTY, message=str(error)))
        except EngineError as error:
            self._sink(EngineStatus(EngineState.FAILED, message=str(error), exit_code=error.exit_code))
        except Exception as error:
            log.exception("loading %s failed", config.model)
            message = f"The model could not be loaded: {reason(error)}."
            self._sink(EngineStatus(EngineState.FAILED, message=message, details=traceback.format_exc()))
        else:
            self._engine.set_watched(enabled=self._watched)
            self._sink(EngineStatus(EngineState.READY, info=self._engine.info))

    def _report_progress(self, progress: LoadProgress) -> None:
        """Between two stages of a load: pass it on, and see whether the load is still wanted."""
        self._sink(progress)
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            match command:
                case Stop():
                    self._stopped = True
                    raise LoadCancelledError
                case UnloadModel():
                    raise LoadCancelledError
                case LoadModel():
                    self._deferred.append(command)
                    raise LoadCancelledError
                case _:
                    self._deferred.append(command)

    def _submit(self, request: Request) -> None:
        if self._engine is None:
            self._sink(RequestFailed(request.request_id, "No model is loaded. Choose one first."))
            return
        try:
            self._engine.submit(request)
            self._open[request.request_id] = None
        except EngineError as error:
            self._sink(RequestFailed(request.request_id, str(error)))
        except Exception as error:
            log.exception("request %s was not taken", request.request_id)
            self._sink(RequestFailed(request.request_id, f"The request could not be prepared: {reason(error)}."))

    def _cancel(self, request_id: str) -> None:
        finished = self._engine.cancel(request_id) if self._engine is not None else None
        if finished is not None:
            self._open.pop(request_id, None)
            self._sink(finished)

    def _resize_cache(self, engine: EngineLike, num_blocks: int) -> None:
        """The answer is the engine's status: its new size, or the old one with the reason."""
        message = ""
        try:
            engine.resize_cache(num_blocks)
        except EngineError as error:
            message = str(error)
        self._sink(EngineStatus(EngineState.READY, info=engine.info, message=message))

    def _step(self, engine: EngineLike) -> None:
        self._checked = False
        output = engine.step()
        self._sink(output)
        for finished in output.finished:
            self._open.pop(finished.request_id, None)
        if self._watched and time.monotonic() >= self._block_map_due_s:
            self._send_block_map()

    def _send_block_map(self) -> None:
        if self._engine is not None and self._watched:
            self._block_map_due_s = time.monotonic() + BLOCK_MAP_PERIOD_S
            self._sink(self._engine.block_map())

    def _fail(self, error: Exception, details: str) -> None:
        """The engine broke: no open request may wait for ever, and the memory goes back."""
        message = f"The engine stopped: {_what_broke(error)}. Load the model again to go on."
        self._fail_open(message)
        if self._engine is not None:
            engine, self._engine = self._engine, None
            _close_quietly(engine)
        self._tell(EngineStatus(EngineState.FAILED, message=message, details=details))

    def _close(self) -> None:
        """Close the engine, whatever state it is in; who is still open is told."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        for finished in _cancel_quietly(engine):
            self._open.pop(finished.request_id, None)
            self._tell(finished)
        self._fail_open("The engine was closed, and this answer with it. Ask again.")
        _close_quietly(engine)

    def _fail_open(self, message: str) -> None:
        for request_id in self._open:
            self._tell(RequestFailed(request_id, message))
        self._open.clear()

    def _tell(self, event: EngineEvent) -> None:
        """Say it where a sink that fails must not keep anything from being closed."""
        try:
            self._sink(event)
        except Exception:
            log.exception("%s could not be told", type(event).__name__)


def _what_broke(error: Exception) -> str:
    if isinstance(error, IntegrityError):
        return f"the books of its KV cache do not add up ({error})"
    return reason(error)


def _cancel_quietly(engine: EngineLike) -> tuple[RequestFinished, ...]:
    try:
        return engine.cancel_all()
    except Exception:
        log.exception("the open requests could not be cancelled")
        return ()


def _close_quietly(engine: EngineLike) -> None:
    try:
        engine.close()
    except Exception:
        log.exception("closing the engine failed")
