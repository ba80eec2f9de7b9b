"""An EngineClient without an engine: records what it is told, and says what a test scripts."""

from dataclasses import dataclass, field

from PySide6.QtCore import QObject, Signal

from engine.config import EngineConfig
from engine.events import (
    EngineState,
    EngineStatus,
    FinishReason,
    ModelInfo,
    RequestFailed,
    RequestFinished,
)
from engine.requests import Request

INFO = ModelInfo(
    name="SmolLM2-135M-Instruct",
    architecture="llama",
    dtype="bfloat16",
    device="CPU, 2 threads",
    attention="gather + SDPA",
    num_parameters=134_515_008,
    weights_bytes=269_000_000,
    block_size_tokens=16,
    block_bytes=368_640,
    num_blocks=1024,
    max_model_len_tokens=8192,
    max_num_seqs=16,
    max_num_batched_tokens=256,
    load_s=2.4,
    identity="SmolLM2 1",
)
READY = EngineStatus(EngineState.READY, info=INFO)


@dataclass
class _Open:
    tokens: int = 0
    prompt_tokens: int = field(default=12)


class FakeEngineClient(QObject):
    """Same signals and methods as `app.bridge.engine_client.EngineClient`.

    Attributes:
        submitted, cancelled, loaded: what was asked, in order.
        answers_cancel: whether a cancel is answered at once, as the engine does at its next step boundary.
    """

    status_changed = Signal(object)
    load_progressed = Signal(object)
    text_arrived = Signal(str, str, object)
    request_finished = Signal(object)
    request_failed = Signal(object)
    steps_arrived = Signal(object)
    block_map_arrived = Signal(object)
    stopped = Signal()

    def __init__(self, status: EngineStatus = READY) -> None:
        super().__init__()
        self._status = status
        self._open: dict[str, _Open] = {}
        self.submitted: list[Request] = []
        self.cancelled: list[str] = []
        self.loaded: list[EngineConfig] = []
        self.watched: list[bool] = []
        self.answers_cancel = True

    @property
    def status(self) -> EngineStatus:
        return self._status

    @property
    def open_requests(self) -> frozenset[str]:
        return frozenset(self._open)

    def load_model(self, config: EngineConfig) -> None:
        self.loaded.append(config)
        self.set_status(EngineStatus(EngineState.LOADING))

    def unload_model(self) -> None:
        for request_id in tuple(self._open):
            self.finish(request_id, FinishReason.CANCELLED)
        self.set_status(EngineStatus(EngineState.EMPTY))

    def submit(self, request: Request) -> None:
        self.submitted.append(request)
        self._open[request.request_id] = _Open()

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)
        if self.answers_cancel and request_id in self._open:
            self.finish(request_id, FinishReason.CANCELLED)

    def set_watched(self, enabled: bool) -> None:
        self.watched.append(enabled)

    # What a test scripts.

    @property
    def last_id(self) -> str:
        return self.submitted[-1].request_id

    def set_status(self, status: EngineStatus) -> None:
        self._status = status
        self.status_changed.emit(status)

    def say(self, text: str, request_id: str | None = None, *token_ids: int) -> None:
        """These ids, or one made up, came with the text."""
        token_ids = token_ids or (7,)
        request_id = request_id or self.last_id
        self._open.setdefault(request_id, _Open()).tokens += len(token_ids)
        self.text_arrived.emit(request_id, text, token_ids)

    def finish(
        self,
        request_id: str | None = None,
        reason: FinishReason = FinishReason.EOS,
        *,
        cached_tokens: int = 0,
        message: str = "",
    ) -> None:
        request_id = request_id or self.last_id
        opened = self._open.pop(request_id, _Open())
        self.request_finished.emit(
            RequestFinished(
                request_id=request_id,
                reason=reason,
                prompt_tokens=opened.prompt_tokens,
                new_tokens=opened.tokens,
                cached_tokens=cached_tokens,
                first_step=1 if opened.tokens else None,
                finish_step=opened.tokens or None,
                ttft_s=0.14 if opened.tokens else None,
                decode_s=opened.tokens / 48.2,
                message=message,
            )
        )

    def fail(self, message: str, request_id: str | None = None) -> None:
        request_id = request_id or self.last_id
        self._open.pop(request_id, None)
        self.request_failed.emit(RequestFailed(request_id, message))
