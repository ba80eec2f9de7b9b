"""Records a run: one row per request and per step, and the sum, as plain JSON values."""

from dataclasses import dataclass, field

from engine.events import RequestFinished, StepOutput, StepStats


@dataclass(slots=True)
class Recorder:
    """Collects the outputs of a run. `names` maps request ids to the names that people see."""

    names: dict[str, str] = field(default_factory=dict)
    steps: list[StepStats] = field(default_factory=list)
    finished: list[RequestFinished] = field(default_factory=list)

    def take(self, output: StepOutput) -> None:
        """Add one step."""
        self.steps.append(output.stats)
        self.finished += output.finished

    @property
    def new_tokens(self) -> int:
        """Tokens computed over all requests."""
        return sum(finished.new_tokens for finished in self.finished)

    @property
    def seconds(self) -> float:
        """Host time of all steps."""
        return sum(stats.step_ms for stats in self.steps) / 1e3

    def to_json(self) -> dict[str, object]:
        """`requests` in the order they were named, `steps`, `summary`."""
        order = {request_id: index for index, request_id in enumerate(self.names)}
        requests = sorted(self.finished, key=lambda each: order.get(each.request_id, len(order)))
        return {
            "requests": [self._request(finished) for finished in requests],
            "steps": [_step(stats) for stats in self.steps],
            "summary": {
                "steps": len(self.steps),
                "tokens": self.new_tokens,
                "seconds": round(self.seconds, 4),
                "tokens_per_s": round(self.new_tokens / self.seconds, 2) if self.seconds else None,
                "preemptions": sum(stats.preempted for stats in self.steps),
                "recomputed_tokens": sum(stats.recomputed_tokens for stats in self.steps),
                "prefix_hit_tokens": sum(finished.cached_tokens for finished in self.finished),
            },
        }

    def _request(self, finished: RequestFinished) -> dict[str, object]:
        return {
            "name": self.names.get(finished.request_id, finished.request_id),
            "prompt_tokens": finished.prompt_tokens,
            "new_tokens": finished.new_tokens,
            "first_step": finished.first_step,
            "finish_step": finished.finish_step,
            "preemptions": finished.preemptions,
            "recomputed_tokens": finished.recomputed_tokens,
        }


def step_kind(stats: StepStats) -> str:
    """prefill, decode or mixed."""
    if not stats.decode_tokens:
        return "prefill"
    return "mixed" if stats.prefill_tokens else "decode"


def _step(stats: StepStats) -> dict[str, object]:
    return {
        "step": stats.step,
        "kind": step_kind(stats),
        "prefill_tokens": stats.prefill_tokens,
        "decode_tokens": stats.decode_tokens,
        "running": stats.running,
        "waiting": stats.waiting,
        "preempted": stats.preempted,
        "recomputed_tokens": stats.recomputed_tokens,
        "blocks_free": stats.blocks_free,
        "blocks_used": stats.blocks_used,
        "blocks_cached": stats.blocks_cached,
        "ms": round(stats.step_ms, 3),
    }
