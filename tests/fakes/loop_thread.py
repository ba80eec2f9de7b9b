"""An engine's loop in a plain thread of its own, and all that it said."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.commands import Command, Stop
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import (
    EngineEvent,
    EngineState,
    EngineStatus,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    StepOutput,
)
from engine.loop import IDLE_CHECK_S, EngineLoop

PATIENCE_S = 60
Progress = Callable[[LoadProgress], None]


class Ownership(TorchDispatchMode):
    """Sees every tensor that its own thread makes, and how."""

    def __init__(self) -> None:
        super().__init__()
        self.pointers: set[int] = set()
        self.grad_modes: set[tuple[bool, bool]] = set()

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.grad_modes.add((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        made = result if isinstance(result, tuple | list) else [result]
        self.pointers |= {tensor.untyped_storage().data_ptr() for tensor in made if isinstance(tensor, Tensor)}
        return result


class LoopThread:
    """A loop in a thread of its own; the test waits for events, never for time."""

    def __init__(
        self,
        load_engine: Callable[[EngineConfig, Progress], Engine] = Engine.load,
        *,
        idle_check_s: float = IDLE_CHECK_S,
    ) -> None:
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self.events: list[EngineEvent] = []
        self.owned = Ownership()
        self.on_event: Callable[[EngineEvent], None] = lambda _event: None
        self.loop = EngineLoop(self.commands, self._take, load_engine, idle_check_s=idle_check_s)
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self.owned:
            self.loop.run()

    def _take(self, event: EngineEvent) -> None:
        self.on_event(event)
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def put(self, *commands: Command) -> None:
        for command in commands:
            self.commands.put(command)

    def wait_for(self, found: Callable[["LoopThread"], Any]) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: found(self), PATIENCE_S), self.events[-3:]
            return found(self)

    def wait_for_state(self, state: EngineState) -> EngineStatus:
        """The newest status, once it is this one."""
        return self.wait_for(lambda seen: seen.statuses and seen.statuses[-1].state is state and seen.statuses[-1])

    def wait_for_end(self, request_id: str) -> RequestFinished:
        return self.wait_for(lambda seen: seen.ends.get(request_id))

    @property
    def statuses(self) -> list[EngineStatus]:
        return [event for event in self.events if isinstance(event, EngineStatus)]

    @property
    def steps(self) -> list[StepOutput]:
        return [event for event in self.events if isinstance(event, StepOutput)]

    @property
    def ends(self) -> dict[str, RequestFinished]:
        alone = [event for event in self.events if isinstance(event, RequestFinished)]
        return {end.request_id: end for end in [*alone, *(end for step in self.steps for end in step.finished)]}

    @property
    def failures(self) -> dict[str, str]:
        return {event.request_id: event.message for event in self.events if isinstance(event, RequestFailed)}

    def tokens(self, request_id: str) -> list[int]:
        deltas = [delta for step in self.steps for delta in step.deltas if delta.request_id == request_id]
        return [token for delta in deltas for token in delta.token_ids]

    def stop(self) -> None:
        self.put(Stop())
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


def at_step(thread: LoopThread, step: int, *commands: Command) -> None:
    """Send commands from the loop's own thread, so that a busy machine cannot make them late."""

    def on_event(event: EngineEvent) -> None:
        if isinstance(event, StepOutput) and event.stats.step == step:
            thread.put(*commands)

    thread.on_event = on_event
