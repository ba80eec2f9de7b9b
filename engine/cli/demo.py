"""`kvscope demo`: plays a scenario on the real engine and shows, step by step, what batching did."""

from pathlib import Path

from engine.cli.terminal import StatusLine
from engine.config import EngineConfig
from engine.events import StepStats, WaitReason
from engine.llm import LLM
from engine.trace.export import check_writable, write_json
from engine.trace.policies import static_steps
from engine.trace.recorder import Recorder, step_kind
from engine.trace.scenarios import Scenario


def demo(scenario: Scenario, config: EngineConfig, json_file: Path | None) -> int:
    """Play it, print a table, and write the whole trace to `json_file` if one is given."""
    if json_file is not None:
        check_writable(json_file)
    with StatusLine() as status:
        llm = LLM(config, status.show_load)
    requests = scenario.to_requests()
    recorder = Recorder({request.request_id: request.request_id for request in requests})
    with llm, StatusLine() as status:
        print(f"{scenario.title}\n{_engine_line(llm)}\n")
        for output in llm.run(requests):
            recorder.take(output)
            status.show(_step_text(output.stats))
    print(_table(recorder, scenario))
    if json_file is not None:
        write_json(json_file, recorder.to_json())
        print(f"\nThe trace is in {json_file}.")
    return 0


def _engine_line(llm: LLM) -> str:
    info = llm.info
    return (
        f"{info.name} · {info.dtype} · {info.device} · {info.num_blocks} blocks of {info.block_size_tokens} tokens · "
        f"{info.max_num_seqs} slots · {info.max_num_batched_tokens:,} tokens a step · {info.policy}"
    )


def _step_text(stats: StepStats) -> str:
    return (
        f"step {stats.step}: {stats.prefill_tokens} prefill + {stats.decode_tokens} decode tokens, "
        f"{stats.running} running, {stats.waiting} waiting, {stats.blocks_free} of {stats.blocks_total} blocks free"
        + (f" ({stats.waits_for.value})" if stats.waits_for else "")
    )


def _table(recorder: Recorder, scenario: Scenario) -> str:
    lines = [
        f"{'request':<14}{'prompt':>8}{'new':>6}{'first step':>12}{'last step':>11}{'preempted':>11}{'recomputed':>12}"
    ]
    by_id = {finished.request_id: finished for finished in recorder.finished}
    for request_id, name in recorder.names.items():
        end = by_id[request_id]
        lines.append(
            f"{name:<14}{end.prompt_tokens:>8}{end.new_tokens:>6}{end.first_step!s:>12}{end.finish_step!s:>11}"
            f"{end.preemptions:>11}{end.recomputed_tokens:>12}"
        )
    return "\n".join([*lines, "", *_summary(recorder, scenario)])


def _summary(recorder: Recorder, scenario: Scenario) -> list[str]:
    steps = recorder.steps
    kinds = [step_kind(stats) for stats in steps]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("prefill", "mixed", "decode") if kind in kinds)
    preemptions = sum(stats.preempted for stats in steps)
    recomputed = sum(stats.recomputed_tokens for stats in steps)
    speed = recorder.new_tokens / recorder.seconds
    lines = [
        f"{len(steps)} steps ({counts}), {preemptions} preemptions, {recomputed:,} tokens recomputed.",
        f"{recorder.new_tokens:,} tokens in {recorder.seconds:.2f} s: {speed:.0f} tok/s.",
        f"Free blocks: {steps[0].blocks_free} after the first step, {steps[-1].blocks_free} at the end.",
    ]
    short_steps = sum(stats.waits_for is WaitReason.SYSTEM_MEMORY for stats in steps)
    if short_steps:
        lines.append(f"In {short_steps} steps requests waited because {WaitReason.SYSTEM_MEMORY.value}.")
    groups = static_steps([request.max_tokens for request in scenario.requests], scenario.max_num_seqs)
    if groups > len(steps):
        lines.append(f"Groups of {scenario.max_num_seqs} that wait for their longest would have taken {groups} steps.")
    return lines
