"""Merging a frame, against a twin that replays both streams."""

from hypothesis import given
from hypothesis import strategies as st

from app.bridge.merge import FrameEvent, MergedSteps, MergedText, merge
from engine.events import (
    BlockMap,
    EngineEvent,
    EngineState,
    EngineStatus,
    FinishReason,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    StepOutput,
    StepStats,
    TextDelta,
)


def stats(step: int) -> StepStats:
    return StepStats(
        step=step, time_s=float(step), prefill_tokens=0, decode_tokens=1, running=1, waiting=0, preempted=0,
        blocks_total=8, blocks_free=7, blocks_used=1, blocks_cached=0, schedule_ms=0.0, forward_ms=1.0, sample_ms=0.0,
    )  # fmt: skip


def finished(request_id: str, text: str = "") -> RequestFinished:
    return RequestFinished(
        request_id=request_id, reason=FinishReason.EOS, prompt_tokens=1, new_tokens=1, cached_tokens=0, first_step=1,
        finish_step=1, ttft_s=0.0, decode_s=0.0, text=text,
    )  # fmt: skip


NAMES = st.sampled_from("abc")
DELTAS = st.builds(lambda name, text: TextDelta(name, tuple(map(ord, text)), text), NAMES, st.text("xyz", max_size=3))
EVENTS = st.one_of(
    st.builds(
        lambda deltas, ends, step: StepOutput(tuple(deltas), tuple(finished(end) for end in ends), stats(step)),
        st.lists(DELTAS, max_size=3),
        st.lists(NAMES, max_size=2, unique=True),
        st.integers(1, 99),
    ),
    st.builds(finished, NAMES, st.text("XYZ", max_size=2)),  # held back: its ids have come before
    NAMES.map(lambda name: RequestFailed(name, "broken")),
    st.floats(0, 1).map(lambda fraction: LoadProgress("Reading", fraction)),
    st.integers(1, 9).map(lambda total: BlockMap(total, 16, (), ())),
    st.sampled_from(EngineState).map(EngineStatus),
)


def of_request(events: list[EngineEvent], request_id: str) -> list[str]:
    """What one request saw: runs of text, and ends."""
    seen = [""]
    for event in events:
        deltas, ends = (event.deltas, event.finished) if isinstance(event, StepOutput) else ((), (event,))
        seen[-1] += "".join(delta.text for delta in deltas if delta.request_id == request_id)
        for end in ends:
            if isinstance(end, RequestFinished | RequestFailed) and end.request_id == request_id:
                seen[-1] += end.text if isinstance(end, RequestFinished) else ""
                seen += [type(end).__name__, ""]
    return seen


def of_request_merged(events: list[FrameEvent], request_id: str) -> list[str]:
    seen = [""]
    for event in events:
        if isinstance(event, MergedText) and event.request_id == request_id:
            seen[-1] += event.text
        if isinstance(event, RequestFinished | RequestFailed) and event.request_id == request_id:
            seen += [type(event).__name__, ""]
    return seen


@given(st.lists(EVENTS, max_size=20))
def test_each_request_sees_its_text_and_ends_in_order(events: list[EngineEvent]) -> None:
    merged = merge(events)
    for name in "abc":
        assert of_request_merged(merged, name) == of_request(events, name)


@given(st.lists(EVENTS, max_size=20))
def test_all_steps_stay_and_so_do_the_ids_beside_their_text(events: list[EngineEvent]) -> None:
    merged = merge(events)
    steps = [step for event in merged if isinstance(event, MergedSteps) for step in event.steps]
    assert steps == [event.stats for event in events if isinstance(event, StepOutput)]
    texts = [event for event in merged if isinstance(event, MergedText)]
    assert all(event.token_ids == tuple(ord(each) for each in event.text if each in "xyz") for event in texts)
    deltas = [delta for event in events if isinstance(event, StepOutput) for delta in event.deltas]
    assert sum(len(event.token_ids) for event in texts) == sum(len(delta.token_ids) for delta in deltas)


def test_between_two_states_only_the_newest_map_and_progress_are_kept() -> None:
    loading, ready = EngineStatus(EngineState.LOADING), EngineStatus(EngineState.READY)
    progress = [LoadProgress("Reading", fraction) for fraction in (0.1, 0.5, 0.9)]
    maps = [BlockMap(total, 16, (), ()) for total in (1, 2)]
    assert merge([loading, *progress, ready, *maps]) == [loading, progress[-1], ready, maps[-1]]


def test_many_steps_give_one_text() -> None:
    outputs = [StepOutput((TextDelta("a", (step,), "x"),), (), stats(step)) for step in range(100)]
    merged = merge(outputs)
    assert merged == [
        MergedText("a", "x" * 100, tuple(range(100))),
        MergedSteps(tuple(output.stats for output in outputs)),
    ]
