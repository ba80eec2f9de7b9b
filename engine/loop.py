"""The loop around an engine: takes commands from a queue, steps, gives every event to a sink.

It owns the engine from creation to close, so whoever calls `run` owns every tensor. It knows no Qt; the window, the
command line and the tests all run this one loop. Failures of one request end that request; a failure of the engine
itself ends every open request with a message, and a model can be loaded again.
"""

import logging
import time
import traceback
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from engine.commands import Cancel, Command, LoadModel, ResizeCache, Stop, Submit, UnloadModel, Watch
from engine.config import EngineConfig
from engine.errors import EngineError, LoadCancelledError
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

log = logging.getLogger(__name__)

BLOCK_MAP_PERIOD_S = 0.2


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

    def close(self) -> None:
        """Give everything back."""


EngineFactory = Callable[[EngineConfig, Callable[[LoadProgress], None]], EngineLike]


def _load_engine(config: EngineConfig, on_progress: Callable[[LoadProgress], None]) -> EngineLike:
    # torch is imported in the loop's own thread, and only when a model is loaded.
    from engine.engine import Engine

    return Engine.load(config, on_progress)


class EngineLoop:
    """Runs one engine at a time.

    Args:
        commands: filled by any thread.
        sink: receives every event, in order, in the loop's thread; it must not block.
        load_engine: builds an engine; calls the progress function between stages.
    """

    def __init__(
        self,
        commands: "SimpleQueue[Command]",
        sink: Callable[[EngineEvent], None],
        load_engine: EngineFactory = _load_engine,
    ) -> None:
        self._commands = commands
        self._sink = sink
        self._load_engine = load_engine
        self._engine: EngineLike | None = None
        self._watched = False
        self._block_map_due_s = 0.0
        self._stopped = False
        self._deferred: list[Command] = []  # arrived while a model was loading
        self._open: dict[str, None] = {}  # request ids without an end, oldest first; known even of a broken engine

    def run(self) -> None:
        """Serve commands until Stop. Never raises for a failure of a request or of the engine."""
        try:
            while not self._stopped:
                self._take_commands()
                if self._engine is not None and self._engine.has_work and not self._stopped:
                    self._step(self._engine)
        finally:
            self._close()

    def _take_commands(self) -> None:
        """Apply what has arrived; wait only when there is nothing to compute."""
        while self._deferred and not self._stopped:
            self._apply(self._deferred.pop(0))
        idle = self._engine is None or not self._engine.has_work
        if idle and not self._stopped:
            self._send_block_map()
            self._apply(self._commands.get())
        while not self._stopped:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            self._apply(command)

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
            message = f"The model could not be loaded: {error}"
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
            self._sink(RequestFailed(request.request_id, f"The request could not be prepared: {error}"))

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
        except Exception as error:
            log.exception("the cache could not be resized")
            self._fail(engine, error, traceback.format_exc())
            return
        self._sink(EngineStatus(EngineState.READY, info=engine.info, message=message))

    def _step(self, engine: EngineLike) -> None:
        try:
            output = engine.step()
        except Exception as error:
            log.exception("a step failed")
            self._fail(engine, error, traceback.format_exc())
            return
        for finished in output.finished:
            self._open.pop(finished.request_id, None)
        self._sink(output)
        if self._watched and time.monotonic() >= self._block_map_due_s:
            self._send_block_map()

    def _send_block_map(self) -> None:
        if self._engine is not None and self._watched:
            self._block_map_due_s = time.monotonic() + BLOCK_MAP_PERIOD_S
            self._sink(self._engine.block_map())

    def _fail(self, engine: EngineLike, error: Exception, details: str) -> None:
        """The engine broke: no open request may wait for ever, and the memory goes back."""
        message = f"The engine stopped: {error}. Load the model again to go on."
        for request_id in self._open:
            self._sink(RequestFailed(request_id, message))
        self._open.clear()
        self._discard(engine)
        self._sink(EngineStatus(EngineState.FAILED, message=message, details=details))

    def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        for finished in engine.cancel_all():
            self._sink(finished)
        self._open.clear()
        engine.close()

    def _discard(self, engine: EngineLike) -> None:
        self._engine = None
        try:
            engine.close()
        except Exception:
            log.exception("closing a broken engine failed")
