"""The engine: takes requests, computes them in shared steps, says what happened. The only stateful facade.

It belongs to one thread from creation to close and never waits: whoever owns it calls `step` while `has_work`.
"""

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping

from engine.answer import Answer
from engine.cache.block_pool import BlockPool
from engine.config import EngineConfig
from engine.errors import RequestError, UsageError, reason
from engine.events import (
    BlockMap,
    BlockOwner,
    FinishReason,
    LoadProgress,
    ModelInfo,
    RequestFinished,
    StepOutput,
    TextDelta,
    TokenLogprobs,
)
from engine.loader import LoadedModel, load_model
from engine.requests import Request
from engine.scheduling.sequence import Sequence
from engine.step_stats import sequence_rows, step_stats
from engine.text.detokenizer import Detokenizer

log = logging.getLogger(__name__)


class Engine:
    """Many answers at once on one model and one paged cache."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._scheduler = model.scheduler
        self._answers: dict[str, Answer] = {}
        self._planned_context_tokens = model.info.max_model_len_tokens
        self._watched = False
        self._step = 0

    @classmethod
    def load(cls, config: EngineConfig, on_progress: Callable[[LoadProgress], None] = lambda _: None) -> "Engine":
        """Read the model, plan the memory, build the cache.

        Args:
            config: what to build; `model` is a path.
            on_progress: called between stages; it may raise to stop the load.

        Raises:
            ModelError: the model cannot be read.
            PlanRefusedError: the cache would be too small to be of use.
        """
        return cls(load_model(config, on_progress))

    @property
    def info(self) -> ModelInfo:
        """What is loaded and how it runs."""
        return self._model.info

    def token_text(self, token_id: int) -> str:
        """The token by itself, control tokens by name; "" for a model without a tokenizer."""
        tokenizer = self._model.tokenizer
        return "" if tokenizer is None else tokenizer.token_bytes(token_id, skip_special=False).decode(errors="replace")

    @property
    def has_work(self) -> bool:
        """Whether any request is open."""
        return self._scheduler.has_work

    def submit(self, request: Request) -> None:
        """Take a request, behind all others.

        Raises:
            RequestError: it can never be served: too long, empty, or its id is in use.
        """
        if request.request_id in self._answers:
            raise RequestError(f"A request with the id {request.request_id!r} is open already; ids must differ.")
        sampling = request.sampling
        if sampling.seed is None:
            sampling = dataclasses.replace(sampling, seed=random.getrandbits(63))
        self._check_ids(token_id for token_id, _ in sampling.logit_bias)
        sequence = Sequence(request.request_id, self._encode_checked(request), sampling)
        tokenizer = self._model.tokenizer
        detokenizer = Detokenizer(tokenizer) if tokenizer is not None else None
        answer = Answer(sequence, detokenizer, self._model.eos_token_ids, submitted_s=time.monotonic())
        # Last of all: what the scheduler holds must have an answer, or a step would fail for everybody.
        self._scheduler.add(sequence)
        self._answers[request.request_id] = answer

    def cancel(self, request_id: str) -> RequestFinished | None:
        """End a request now; None when none of that id is open. Its computed blocks stay as a prefix."""
        answer = self._answers.pop(request_id, None)
        if answer is None:
            return None
        self._scheduler.cancel(request_id)
        return answer.stopped(FinishReason.CANCELLED)

    def cancel_all(self) -> tuple[RequestFinished, ...]:
        """End every open request."""
        ended = [self.cancel(request_id) for request_id in tuple(self._answers)]
        return tuple(finished for finished in ended if finished is not None)

    def resize_cache(self, num_blocks: int) -> None:
        """Go on with a cache of this many usable blocks; every open request keeps its tokens and is computed anew.

        Cached prefixes are lost. Whether the memory is free is for the caller to know, who has the plan. A context
        that was shortened to the first cache does not grow beyond that: its rotary tables end there.

        Raises:
            CacheTooSmallError: an open request could never go on; then nothing has changed.
            CacheAllocationError: there is no memory for it; the size stays.
        """
        model, old = self._model, self._scheduler.pool
        if num_blocks < 1:
            raise UsageError(f"{num_blocks} KV blocks were asked for; at least 1 is needed.")
        if num_blocks == old.num_blocks:
            return
        self._scheduler.check_fits(num_blocks)
        kept_blocks = old.num_blocks
        try:
            model.runner.resize_cache(num_blocks)
            kept_blocks = num_blocks
        finally:  # what the old pool says of the blocks is wrong in either case
            self._replace_pool(BlockPool(kept_blocks, old.block_size, prefix_caching=old.prefix_caching))

    def _replace_pool(self, pool: BlockPool) -> None:
        if pool.capacity_tokens > self._planned_context_tokens:
            self._scheduler.max_model_len = min(self._scheduler.max_model_len, self._planned_context_tokens)
        self._scheduler.replace_pool(pool)
        self._model.info = dataclasses.replace(
            self._model.info, num_blocks=pool.num_blocks, max_model_len_tokens=self._scheduler.max_length_tokens
        )

    def step(self) -> StepOutput:
        """Schedule, run, complete, report."""
        started = time.perf_counter()
        batch = self._scheduler.schedule()
        schedule_ms = 1e3 * (time.perf_counter() - started)
        result = self._model.runner.run(batch)
        failed = self._end_failed(result.sampled.failed)
        extended = self._scheduler.complete(batch, result.sampled.tokens)
        deltas, finished = self._report(extended, result.sampled.logprobs)
        self._step = batch.step
        stats = step_stats(
            batch,
            self._scheduler,
            schedule_ms=schedule_ms,
            forward_ms=result.forward_ms,
            sample_ms=result.sample_ms,
            rows=sequence_rows(batch, self._scheduler) if self._watched else (),
        )
        return StepOutput(deltas, failed + finished, stats)

    def block_map(self) -> BlockMap:
        """Who holds each block now."""
        pool = self._scheduler.pool
        return BlockMap(
            blocks_total=pool.num_blocks,
            block_size_tokens=pool.block_size,
            owners=tuple(
                BlockOwner(sequence.request_id, tuple(sequence.block_table), sequence.num_computed)
                for sequence in self._scheduler.running
            ),
            cached=pool.cached_block_ids,
        )

    def set_watched(self, *, enabled: bool) -> None:
        """Whether each step carries a row per sequence."""
        self._watched = enabled

    def check_integrity(self) -> None:
        """Recompute every count from scratch; raises IntegrityError with the first thing that does not add up."""
        self._scheduler.check_integrity()

    def close(self) -> None:
        """Give everything back; a second time changes nothing."""
        self._answers.clear()
        self._model.close()

    def _encode(self, request: Request) -> list[int]:
        """The prompt's token ids."""
        if request.token_ids:
            return list(request.token_ids)
        if self._model.tokenizer is None or self._model.chat_template is None:
            raise RequestError("This model has random weights and no tokenizer; give token ids instead of text.")
        if request.messages:
            return self._model.chat_template.render(request.messages)
        token_ids = self._model.tokenizer.encode_prompt(request.text or "")
        if not token_ids:
            raise RequestError("The prompt is empty; type something first.")
        return token_ids

    def _encode_checked(self, request: Request) -> list[int]:
        token_ids = self._encode(request)
        self._check_ids(token_ids)
        return token_ids

    def _check_ids(self, token_ids: Iterable[int]) -> None:
        """A tokenizer may know more tokens than the model: one foreign id would break the step of everybody."""
        vocab_size = self._model.vocab_size
        foreign = next((token_id for token_id in token_ids if not 0 <= token_id < vocab_size), None)
        if foreign is not None:
            raise RequestError(f"Token id {foreign} is not in this model's vocabulary of {vocab_size:,} tokens.")

    def _end_failed(self, failed: Mapping[str, str]) -> tuple[RequestFinished, ...]:
        """End requests that got no token, before the step is booked: what they computed must not become a prefix."""
        finished = []
        for request_id, message in failed.items():
            answer = self._answers.pop(request_id)
            self._model.runner.wipe(self._scheduler.discard(answer.sequence))
            finished.append(answer.stopped(FinishReason.ERROR, message))
        return tuple(finished)

    def _report(
        self, extended: tuple[Sequence, ...], logprobs: Mapping[str, TokenLogprobs]
    ) -> tuple[tuple[TextDelta, ...], tuple[RequestFinished, ...]]:
        """Show each new token, and end the answers that are complete."""
        now_s = time.monotonic()
        deltas, finished = [], []
        for sequence in extended:
            answer = self._answers[sequence.request_id]
            delta, end, message = self._take(answer, logprobs.get(sequence.request_id), now_s)
            deltas.append(delta)
            if end is not None:
                self._scheduler.finish(sequence)
                del self._answers[sequence.request_id]
                finish = answer.stopped if end is FinishReason.ERROR else answer.finished
                finished.append(finish(end, message))
        return tuple(deltas), tuple(finished)

    def _take(
        self, answer: Answer, logprobs: TokenLogprobs | None, now_s: float
    ) -> tuple[TextDelta, FinishReason | None, str]:
        """Show an answer's newest token. What goes wrong with its text ends this answer, not the engine."""
        sequence = answer.sequence
        try:
            delta, end = answer.take(self._scheduler.reached_limit(sequence), logprobs, now_s)
        except Exception as error:
            log.exception("the text of request %s could not be made", sequence.request_id)
            delta = TextDelta(sequence.request_id, (sequence.token_ids[-1],), "")
            return delta, FinishReason.ERROR, f"The answer's text could not be made: {reason(error)}. Ask again."
        return delta, end, self._end_message(end)

    def _end_message(self, end: FinishReason | None) -> str:
        if end is not FinishReason.CAPACITY:
            return ""
        return (
            f"The answer filled the whole KV cache of {self._scheduler.pool.capacity_tokens:,} tokens. "
            "Give it more blocks or free memory to go on."
        )
