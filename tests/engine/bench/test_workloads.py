"""What is measured: how many tokens, and never the same prompt twice."""

import pytest

from engine.bench.workloads import BATCH, COMPARISON, SINGLE, SLOTS, WORKLOADS, choose_workload
from engine.errors import UsageError


@pytest.mark.parametrize("name", WORKLOADS)
def test_prompts(name: str) -> None:
    workload = WORKLOADS[name]
    runs = [workload.prompts(repetition) for repetition in range(-1, workload.repetitions)]
    for prompts in runs:
        assert [len(prompt) for prompt in prompts] == [workload.prompt_tokens] * workload.num_sequences
        assert len(workload.lengths()) == workload.num_sequences
        assert min(workload.lengths()) >= 1
    heads = {tuple(prompt[:16]) for prompts in runs for prompt in prompts}
    assert len(heads) == len(runs) * workload.num_sequences, "a prefix cache would help"
    assert workload.prompts(0) == runs[1], "a repetition is the same in every run"


def test_the_sizes_of_the_comparison() -> None:
    assert (SINGLE.num_sequences, BATCH.num_sequences, SLOTS.num_sequences) == (1, 16, 40)
    assert (SLOTS.num_slots, sum(SLOTS.lengths()), max(SLOTS.lengths())) == (8, 1060, 59)
    assert choose_workload(COMPARISON, random_weights=None) == COMPARISON
    assert choose_workload("single", random_weights="qwen3-0.6b") == "single"


def test_without_a_name_it_is_the_comparison_where_there_are_weights() -> None:
    assert choose_workload(None, random_weights=None) == COMPARISON
    assert choose_workload(None, random_weights="qwen3-0.6b") == "single"


def test_what_cannot_be_run_is_refused_early() -> None:
    with pytest.raises(UsageError, match=r"'huge'; choose cpu, single, batch, slots, prefill, scheduler\."):
        choose_workload("huge", random_weights=None)
    with pytest.raises(UsageError, match="compares real weights"):
        choose_workload("cpu", random_weights="qwen3-0.6b")
