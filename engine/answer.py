"""The text side of one request: from sampled tokens to shown text, and the reason for the end."""

import logging

from engine.events import FinishReason, RequestFinished, TextDelta, TokenLogprobs
from engine.scheduling.sequence import Sequence
from engine.text.detokenizer import Detokenizer
from engine.text.stop_strings import StopStringFilter

log = logging.getLogger(__name__)


class Answer:
    """One open request: its sequence, what of its text has been shown, and its times.

    Args:
        sequence: the tokens; the scheduler owns it.
        detokenizer: None for a model without a tokenizer; then no text is produced.
        eos_token_ids: ids that end the answer.
        submitted_s: time.monotonic() when the request came.
    """

    def __init__(
        self, sequence: Sequence, detokenizer: Detokenizer | None, eos_token_ids: frozenset[int], submitted_s: float
    ) -> None:
        self.sequence = sequence
        self._detokenizer = detokenizer
        self._stop_filter = StopStringFilter(sequence.sampling.stop)
        self._eos_token_ids = frozenset() if sequence.sampling.ignore_eos else eos_token_ids
        self._submitted_s = submitted_s
        self._first_token_s: float | None = None
        self._last_token_s = submitted_s

    def take(
        self, limit: FinishReason | None, logprobs: TokenLogprobs | None, now_s: float
    ) -> tuple[TextDelta, FinishReason | None]:
        """Take the sequence's newest token; `limit` is the scheduler's word on its length."""
        if self._first_token_s is None:
            self._first_token_s = now_s
        self._last_token_s = now_s
        token_id = self.sequence.token_ids[-1]
        if token_id in self._eos_token_ids:
            return self._delta(token_id, self._rest(), logprobs), FinishReason.EOS
        text, stopped = self._show(token_id)
        if stopped:
            return self._delta(token_id, text, logprobs), FinishReason.STOP
        if limit is not None:
            text += self._rest()
        return self._delta(token_id, text, logprobs), limit

    def stopped(self, reason: FinishReason, message: str = "") -> RequestFinished:
        """The request's end from outside, between two tokens: what was held back goes with it."""
        try:
            text = self._rest()
        except Exception:
            log.exception("the end of request %s could not be made into text", self.sequence.request_id)
            text = ""
        return self.finished(reason, message, text)

    def finished(self, reason: FinishReason, message: str = "", text: str = "") -> RequestFinished:
        """The request's end, in numbers."""
        sequence, first_s = self.sequence, self._first_token_s
        return RequestFinished(
            request_id=sequence.request_id,
            reason=reason,
            prompt_tokens=sequence.num_prompt_tokens,
            new_tokens=sequence.num_new_tokens,
            cached_tokens=sequence.num_cached_tokens,
            first_step=sequence.first_step,
            finish_step=sequence.finish_step,
            ttft_s=None if first_s is None else first_s - self._submitted_s,
            decode_s=0.0 if first_s is None else self._last_token_s - first_s,
            preemptions=sequence.preemptions,
            recomputed_tokens=sequence.recomputed_tokens,
            message=message,
            text=text,
        )

    def _show(self, token_id: int) -> tuple[str, bool]:
        if self._detokenizer is None:
            return "", False
        return self._stop_filter.push(self._detokenizer.push(token_id))

    def _rest(self) -> str:
        """What was held back: half a character, or the beginning of a stop string that never came."""
        if self._detokenizer is None:
            return ""
        text, stopped = self._stop_filter.push(self._detokenizer.flush())
        return text if stopped else text + self._stop_filter.flush()

    def _delta(self, token_id: int, text: str, logprobs: TokenLogprobs | None) -> TextDelta:
        return TextDelta(self.sequence.request_id, (token_id,), text, (logprobs,) if logprobs is not None else ())
