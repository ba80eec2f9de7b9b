"""An engine without a model: it answers from a script, one token per request and step, and fails when told to."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.config import EngineConfig
from engine.errors import RequestError
from engine.events import (
    BlockMap,
    BlockOwner,
    FinishReason,
    LoadProgress,
    ModelInfo,
    Phase,
    RequestFinished,
    SequenceRow,
    StepOutput,
    StepStats,
    TextDelta,
)
from engine.loop import EngineFactory
from engine.requests import Request

BLOCKS_TOTAL = 480
BLOCK_SIZE_TOKENS = 16
ANSWER = ("Paged", " attention", " hands", " out", " small", " blocks", ".")


def model_info(config: EngineConfig | None = None) -> ModelInfo:
    """What a fake engine says of itself."""
    config = config or EngineConfig()
    return ModelInfo(
        name=Path(config.model).name or "Fake-135M",
        architecture="llama",
        dtype="bfloat16",
        device="CPU, 2 threads",
        attention="gather + SDPA",
        num_parameters=134_515_008,
        weights_bytes=269_030_016,
        block_size_tokens=BLOCK_SIZE_TOKENS,
        block_bytes=BLOCK_SIZE_TOKENS * 23_040,
        num_blocks=BLOCKS_TOTAL,
        max_model_len_tokens=2048,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        load_s=0.1,
    )


def prompt_text(request: Request) -> str:
    """What was asked last, as text."""
    return request.messages[-1].content if request.messages else request.text or ""


@dataclass
class Script:
    """What the engines of one factory do.

    Attributes:
        answer: the tokens of an answer.
        load_error: raised between two stages of a load.
        submit_error: raised by every submit.
        step_error: raised by the step of that number (from 1).
        cancel_error: raised by cancel_all: with step_error, this kills the loop.
        load_gate: a load waits for it between its stages, still answering to Stop; None does not wait.
        step_gate: each step takes one permit; None does not wait.
        pause_s: length of a step.
        engines: every engine that was built, with the thread that built it.
    """

    answer: Callable[[Request], Sequence[str]] = lambda _request: ANSWER
    load_error: Exception | None = None
    submit_error: Exception | None = None
    step_error: tuple[int, Exception] | None = None
    cancel_error: BaseException | None = None
    load_gate: threading.Event | None = None
    step_gate: threading.Semaphore | None = None
    pause_s: float = 0.0
    engines: list["FakeEngine"] = field(default_factory=list)

    @property
    def factory(self) -> EngineFactory:
        """Builds engines that follow this script."""
        return self._load

    def _load(self, config: EngineConfig, on_progress: Callable[[LoadProgress], None]) -> "FakeEngine":
        on_progress(LoadProgress("Reading weights", 0.25))
        if self.load_error is not None:
            raise self.load_error
        while self.load_gate is not None and not self.load_gate.wait(0.01):
            on_progress(LoadProgress("Reading weights", 0.5))
        on_progress(LoadProgress("Ready", 1.0))
        engine = FakeEngine(self, config)
        self.engines.append(engine)
        return engine


@dataclass
class _Sequence:
    request: Request
    tokens: Sequence[str]
    prompt_tokens: int
    started_s: float
    new_tokens: int = 0
    first_step: int | None = None
    first_s: float = 0.0

    @property
    def num_blocks(self) -> int:
        return -(-(self.prompt_tokens + self.new_tokens) // BLOCK_SIZE_TOKENS)

    @property
    def is_complete(self) -> bool:
        limit = self.request.sampling.max_tokens
        return self.new_tokens >= min(len(self.tokens), limit or len(self.tokens))


class FakeEngine:
    """Follows `EngineLike`. A prompt has one token per word; max_tokens is respected."""

    def __init__(self, script: Script, config: EngineConfig) -> None:
        self.thread_id = threading.get_ident()
        self.is_closed = False
        self._script = script
        self._info = model_info(config)
        self._pause = threading.Event()
        self._open: dict[str, _Sequence] = {}
        self._step = 0
        self._watched = False

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def has_work(self) -> bool:
        return bool(self._open)

    def submit(self, request: Request) -> None:
        if self._script.submit_error is not None:
            raise self._script.submit_error
        if request.request_id in self._open:
            raise RequestError(f"The request {request.request_id} is open already.")
        prompt_tokens = max(1, len(prompt_text(request).split()) or len(request.token_ids))
        self._open[request.request_id] = _Sequence(
            request, self._script.answer(request), prompt_tokens, time.monotonic()
        )

    def cancel(self, request_id: str) -> RequestFinished | None:
        sequence = self._open.pop(request_id, None)
        return self._finish(sequence, FinishReason.CANCELLED) if sequence is not None else None

    def cancel_all(self) -> tuple[RequestFinished, ...]:
        if self._script.cancel_error is not None:
            raise self._script.cancel_error
        ends = tuple(self._finish(sequence, FinishReason.CANCELLED) for sequence in self._open.values())
        self._open.clear()
        return ends

    def step(self) -> StepOutput:
        if self._script.step_gate is not None:
            self._script.step_gate.acquire(timeout=10)
        if self._script.pause_s:
            self._pause.wait(self._script.pause_s)
        self._step += 1
        error = self._script.step_error
        if error is not None and error[0] == self._step:
            raise error[1]
        running = tuple(self._open.values())
        prefill_tokens = sum(sequence.prompt_tokens for sequence in running if sequence.new_tokens == 0)
        decode_tokens = sum(sequence.new_tokens > 0 for sequence in running)
        rows = tuple(self._row(sequence) for sequence in running) if self._watched else ()
        deltas = tuple(self._advance(sequence) for sequence in running)
        done = tuple(sequence for sequence in running if sequence.is_complete)
        for sequence in done:
            del self._open[sequence.request.request_id]
        ends = tuple(self._finish(sequence, FinishReason.EOS) for sequence in done)
        return StepOutput(deltas, ends, self._stats(prefill_tokens, decode_tokens, rows))

    def block_map(self) -> BlockMap:
        next_id = 1
        owners = []
        for request_id, sequence in self._open.items():
            owners.append(BlockOwner(request_id, tuple(range(next_id, next_id + sequence.num_blocks))))
            next_id += sequence.num_blocks
        return BlockMap(BLOCKS_TOTAL, BLOCK_SIZE_TOKENS, tuple(owners), ())

    def set_watched(self, *, enabled: bool) -> None:
        self._watched = enabled

    def check_integrity(self) -> None:
        """A script has no books."""

    def close(self) -> None:
        assert threading.get_ident() == self.thread_id, "closed by a thread that did not build it"
        self.is_closed = True

    def _advance(self, sequence: _Sequence) -> TextDelta:
        if sequence.first_step is None:
            sequence.first_step = self._step
            sequence.first_s = time.monotonic()
        text = sequence.tokens[sequence.new_tokens]
        sequence.new_tokens += 1
        return TextDelta(sequence.request.request_id, (sequence.new_tokens,), text)

    def _row(self, sequence: _Sequence) -> SequenceRow:
        decoding = sequence.new_tokens > 0
        tokens = 1 if decoding else sequence.prompt_tokens
        phase = Phase.DECODE if decoding else Phase.PREFILL
        return SequenceRow(sequence.request.request_id, phase, tokens, sequence.num_blocks)

    def _stats(self, prefill_tokens: int, decode_tokens: int, rows: tuple[SequenceRow, ...]) -> StepStats:
        used = sum(sequence.num_blocks for sequence in self._open.values())
        return StepStats(
            step=self._step,
            time_s=time.monotonic(),
            prefill_tokens=prefill_tokens,
            decode_tokens=decode_tokens,
            running=len(self._open),
            waiting=0,
            preempted=0,
            blocks_total=BLOCKS_TOTAL,
            blocks_free=BLOCKS_TOTAL - used,
            blocks_used=used,
            blocks_cached=0,
            schedule_ms=0.1,
            forward_ms=1.0,
            sample_ms=0.1,
            rows=rows,
        )

    def _finish(self, sequence: _Sequence, reason: FinishReason) -> RequestFinished:
        started = sequence.first_step is not None
        now_s = time.monotonic()
        return RequestFinished(
            request_id=sequence.request.request_id,
            reason=reason,
            prompt_tokens=sequence.prompt_tokens,
            new_tokens=sequence.new_tokens,
            cached_tokens=0,
            first_step=sequence.first_step,
            finish_step=self._step if started else None,
            ttft_s=sequence.first_s - sequence.started_s if started else None,
            decode_s=now_s - sequence.first_s if started else 0.0,
        )
