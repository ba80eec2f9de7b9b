"""What a recorded run says as JSON."""

import json
from typing import Any

from engine.events import FinishReason, RequestFinished, StepOutput, StepStats
from engine.trace.recorder import Recorder, step_kind

NEVER = {"preemptions": 0, "recomputed_tokens": 0}


def stats(step: int, **changes: Any) -> StepStats:
    values = {
        "step": step, "time_s": float(step), "prefill_tokens": 0, "decode_tokens": 1, "running": 1, "waiting": 0,
        "preempted": 0, "blocks_total": 10, "blocks_free": 7, "blocks_used": 3, "blocks_cached": 2,
        "schedule_ms": 1.0, "forward_ms": 20.0, "sample_ms": 4.0,
    }  # fmt: skip
    return StepStats(**(values | changes))


def finished(request_id: str, new_tokens: int, finish_step: int, cached_tokens: int = 0) -> RequestFinished:
    return RequestFinished(
        request_id=request_id, reason=FinishReason.LENGTH, prompt_tokens=9, new_tokens=new_tokens,
        cached_tokens=cached_tokens, first_step=1, finish_step=finish_step, ttft_s=0.1, decode_s=0.2,
    )  # fmt: skip


def recorded() -> Recorder:
    recorder = Recorder({"1": "First", "2": "Second"})
    recorder.take(StepOutput((), (finished("2", 1, 1, 16),), stats(1, prefill_tokens=18, decode_tokens=0)))
    recorder.take(StepOutput((), (), stats(2, prefill_tokens=5, preempted=1, recomputed_tokens=4)))
    recorder.take(StepOutput((), (finished("1", 3, 3), finished("other", 2, 3)), stats(3)))
    return recorder


def test_requests_come_in_the_order_of_their_names() -> None:
    assert recorded().to_json()["requests"] == [
        {"name": "First", "prompt_tokens": 9, "new_tokens": 3, "first_step": 1, "finish_step": 3, **NEVER},
        {"name": "Second", "prompt_tokens": 9, "new_tokens": 1, "first_step": 1, "finish_step": 1, **NEVER},
        {"name": "other", "prompt_tokens": 9, "new_tokens": 2, "first_step": 1, "finish_step": 3, **NEVER},
    ]


def test_steps_are_plain_numbers() -> None:
    steps = recorded().to_json()["steps"]
    assert isinstance(steps, list)
    assert steps[1] == {
        "step": 2, "kind": "mixed", "prefill_tokens": 5, "decode_tokens": 1, "running": 1, "waiting": 0,
        "preempted": 1, "recomputed_tokens": 4, "blocks_free": 7, "blocks_used": 3, "blocks_cached": 2, "ms": 25.0,
    }  # fmt: skip
    assert [step["kind"] for step in steps] == ["prefill", "mixed", "decode"]


def test_the_summary_adds_up() -> None:
    assert recorded().to_json()["summary"] == {
        "steps": 3, "tokens": 6, "seconds": 0.075, "tokens_per_s": 80.0, "preemptions": 1,
        "recomputed_tokens": 4, "prefix_hit_tokens": 16,
    }  # fmt: skip


def test_a_run_of_no_steps_is_no_division_by_zero() -> None:
    said = json.loads(json.dumps(Recorder().to_json()))
    assert said["summary"]["tokens_per_s"] is None
    assert said["requests"] == said["steps"] == []


def test_a_step_without_any_decode_is_a_prefill() -> None:
    assert step_kind(stats(1, prefill_tokens=1, decode_tokens=0)) == "prefill"
