"""`kvscope demo` and the identities of its JSON: the experiment with the starter, the slots with a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.trace.scenarios import scenario
from tests.engine.cli.conftest import Terminal

REQUEST_KEYS = {"name", "prompt_tokens", "new_tokens", "first_step", "finish_step", "preemptions", "recomputed_tokens"}
STEP_KEYS = {
    "step", "kind", "prefill_tokens", "decode_tokens", "running", "waiting", "preempted", "blocks_free", "blocks_used",
    "blocks_cached", "recomputed_tokens", "ms",
}  # fmt: skip
SUMMARY_KEYS = {"steps", "tokens", "seconds", "tokens_per_s", "preemptions", "recomputed_tokens", "prefix_hit_tokens"}


def play(terminal: Terminal, name: str, model: Path, *options: str, module: str = "app.main") -> tuple[Any, str]:
    """The trace and what was printed."""
    path = terminal.home.parent / "trace.json"
    done = terminal.types("demo", name, "-m", model, "--threads", "1", "--json", path, *options, module=module)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(path.read_text()), done.stdout


def check_trace(trace: Any, name: str, *, blocks_total: int) -> None:
    """What holds for every trace of a scenario that is never preempted and whose prompts take one step each."""
    requests, steps, summary = trace["requests"], trace["steps"], trace["summary"]
    assert trace.keys() == {"requests", "steps", "summary"}
    assert all(each.keys() == REQUEST_KEYS for each in requests)
    assert all(each.keys() == STEP_KEYS for each in steps)
    assert summary.keys() == SUMMARY_KEYS
    asked = scenario(name).requests
    assert [(each["name"], each["new_tokens"]) for each in requests] == [(each.name, each.max_tokens) for each in asked]
    for each in requests:
        assert each["finish_step"] - each["first_step"] + 1 == each["new_tokens"]
    check_steps(requests, steps, blocks_total)
    assert summary["steps"] == len(steps) == max(each["finish_step"] for each in requests)
    assert summary["tokens"] == sum(each["new_tokens"] for each in requests)
    assert summary["preemptions"] == sum(each["preempted"] for each in steps) == 0
    assert summary["seconds"] == pytest.approx(sum(each["ms"] for each in steps) / 1e3, rel=1e-2)
    assert summary["tokens_per_s"] == pytest.approx(summary["tokens"] / summary["seconds"], rel=1e-2)
    prompts = sum(each["prompt_tokens"] for each in requests)
    assert sum(each["prefill_tokens"] for each in steps) + summary["prefix_hit_tokens"] == prompts


def check_steps(requests: Any, steps: Any, blocks_total: int) -> None:
    assert [each["step"] for each in steps] == list(range(1, len(steps) + 1))
    for row in steps:
        step = row["step"]
        kinds = {(True, False): "prefill", (False, True): "decode", (True, True): "mixed"}
        assert row["kind"] == kinds[row["prefill_tokens"] > 0, row["decode_tokens"] > 0]
        assert row["blocks_used"] + row["blocks_free"] == blocks_total
        assert 0 <= row["blocks_cached"] <= row["blocks_free"]
        assert row["running"] == sum(each["first_step"] <= step < each["finish_step"] for each in requests)
        assert row["waiting"] == sum(step < each["first_step"] for each in requests)
        assert row["decode_tokens"] == sum(each["first_step"] < step <= each["finish_step"] for each in requests)
    assert steps[-1]["blocks_free"] == blocks_total


@pytest.mark.starter
def test_seed_is_the_experiment(terminal: Terminal, starter_gguf: Path) -> None:
    trace, printed = play(terminal, "seed", starter_gguf)
    check_trace(trace, "seed", blocks_total=222)
    requests, steps = trace["requests"], trace["steps"]
    assert sum(each["prompt_tokens"] for each in requests) == 760
    assert len({each["prompt_tokens"] for each in requests}) > 5, "prompts of their own lengths"
    assert {each["first_step"] for each in requests} == {1}
    finishes = [each["finish_step"] for each in requests]
    assert (min(finishes), max(finishes)) == (5, 64)
    assert [each["kind"] for each in steps] == ["prefill"] + ["decode"] * 63
    assert steps[0]["prefill_tokens"] == 760
    free = [each["blocks_free"] for each in steps]
    assert (free[0], free[-1]) == (212, 222)
    assert free == [222 - sum(step < finish for finish in finishes) for step in range(1, 65)], "each gives one back"
    assert "64 steps (1 prefill, 63 decode), 0 preemptions, 0 tokens recomputed." in printed
    assert "Free blocks: 212 after the first step, 222 at the end." in printed


def test_slots_are_taken_in_the_very_next_step(terminal: Terminal, tiny_gguf: Path) -> None:
    trace, printed = play(terminal, "slots", tiny_gguf, "--dtype", "float32")
    check_trace(trace, "slots", blocks_total=256)
    requests, steps = trace["requests"], trace["steps"]
    assert trace["summary"]["tokens"] == 1060
    assert len(steps) == 160
    assert all(each["running"] + ended_at(requests, each["step"]) == 8 for each in steps if each["waiting"])
    assert {each["kind"] for each in steps} == {"prefill", "mixed", "decode"}
    assert "1,060 tokens in " in printed
    assert "Groups of 8 that wait for their longest would have taken 268 steps." in printed


def ended_at(requests: Any, step: int) -> int:
    return sum(each["finish_step"] == step for each in requests)


def test_what_the_user_gives_wins_and_the_engine_has_commands_of_its_own(terminal: Terminal, tiny_gguf: Path) -> None:
    trace, printed = play(
        terminal, "slots", tiny_gguf, "--dtype", "float32", "--kv-blocks", "20", "--block-size", "32",
        module="engine",
    )  # fmt: skip
    assert "20 blocks of 32 tokens" in printed
    assert all(each["blocks_used"] + each["blocks_free"] == 20 for each in trace["steps"])
    assert trace["summary"]["tokens"] == 1060
    assert trace["steps"][-1]["blocks_free"] == 20


@pytest.mark.parametrize("policy", ["mixed", "prefill-first"])
def test_pressure_is_printed_and_everybody_is_served(terminal: Terminal, tiny_gguf: Path, policy: str) -> None:
    """Sixteen blocks are too few for sixteen slots: preemptions and recomputed tokens, by request and in sum."""
    trace, printed = play(
        terminal, "slots", tiny_gguf, "--dtype", "float32", "--kv-blocks", "16", "--policy", policy,
        "--token-budget", "64", "--chunk-size", "16", "--slots", "16",
    )  # fmt: skip
    requests, steps, summary = trace["requests"], trace["steps"], trace["summary"]
    assert f"16 slots · 64 tokens a step · {policy}" in printed
    assert max(each["running"] for each in steps) <= 16
    assert max(each["prefill_tokens"] + each["decode_tokens"] for each in steps) <= 64
    for name in ("preemptions", "recomputed_tokens"):
        assert summary[name] == sum(each[name] for each in requests) > 0
    assert summary["preemptions"] == sum(each["preempted"] for each in steps)
    assert summary["recomputed_tokens"] == sum(each["recomputed_tokens"] for each in steps)
    assert f"{summary['preemptions']} preemptions, {summary['recomputed_tokens']:,} tokens recomputed." in printed
    assert [each["new_tokens"] for each in requests] == [each.max_tokens for each in scenario("slots").requests]
    alone = [each["kind"] for each in steps if each["prefill_tokens"]]
    assert ("mixed" in alone) == (policy == "mixed")
