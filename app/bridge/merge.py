"""Makes of all that arrived in a frame what is worth a repaint. Pure: no Qt, no state between frames."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from engine.events import (
    BlockMap,
    EngineEvent,
    EngineStatus,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    StepOutput,
    StepStats,
    TextDelta,
)


@dataclass(frozen=True, slots=True)
class MergedText:
    """All text of one request in a frame."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MergedSteps:
    """The steps of a frame, oldest first."""

    steps: tuple[StepStats, ...]


FrameEvent = MergedText | MergedSteps | RequestFinished | RequestFailed | BlockMap | EngineStatus | LoadProgress


def merge(events: Iterable[EngineEvent]) -> list[FrameEvent]:
    """One text per request, before its end; one tuple of steps; the newest map and progress.

    A change of the engine's state divides the frame: what came before it stays before it.
    """
    frame = _Frame()
    for event in events:
        frame.take(event)
    frame.close()
    return frame.merged


class _Frame:
    def __init__(self) -> None:
        self.merged: list[FrameEvent] = []
        self._texts: dict[str, list[TextDelta]] = {}
        self._steps: list[StepStats] = []
        self._newest: dict[type, LoadProgress | BlockMap] = {}

    def take(self, event: EngineEvent) -> None:
        match event:
            case StepOutput(deltas, finished, stats):
                self._steps.append(stats)
                for delta in deltas:
                    self._take_delta(delta)
                for end in finished:
                    self.take(end)
            case RequestFinished() | RequestFailed():
                if isinstance(event, RequestFinished) and event.text:
                    self._take_delta(TextDelta(event.request_id, (), event.text))
                self._close_text(event.request_id)
                self.merged.append(event)
            case LoadProgress() | BlockMap():
                self._newest[type(event)] = event
            case EngineStatus():
                self.close()
                self.merged.append(event)

    def close(self) -> None:
        for request_id in tuple(self._texts):
            self._close_text(request_id)
        if self._steps:
            self.merged.append(MergedSteps(tuple(self._steps)))
        self.merged.extend(self._newest.values())
        self._steps = []
        self._newest = {}

    def _take_delta(self, delta: TextDelta) -> None:
        self._texts.setdefault(delta.request_id, []).append(delta)

    def _close_text(self, request_id: str) -> None:
        deltas = self._texts.pop(request_id, [])
        if deltas:
            text = "".join(delta.text for delta in deltas)
            token_ids = tuple(chain.from_iterable(delta.token_ids for delta in deltas))
            self.merged.append(MergedText(request_id, text, token_ids))
