"""The scheduler's benchmark measures what it says: decode steps, blocks that come and are registered, nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.bench import scheduler as bench
from engine.bench.scheduler import BLOCK_SIZE, StepCost, bench_scheduler, measure


class Ticks:
    """A clock that goes on by a microsecond whenever somebody looks."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> float:
        self.now_us += 1
        return self.now_us / 1e6


def test_each_part_is_timed_once() -> None:
    cost = measure(3, steps=BLOCK_SIZE, repetitions=1, clock=Ticks())
    assert [cost.schedule_us, cost.complete_us, cost.stats_us] == [pytest.approx(1.0)] * 3
    assert cost.step_us == pytest.approx(3.0)
    assert cost.sequence_us == pytest.approx(1.0)
    assert cost.aligned_us == pytest.approx(3.0)


@pytest.mark.parametrize(("stagger", "dearest"), [(True, 2), (False, 32)])
def test_every_sequence_decodes_in_every_step_and_fills_a_block_in_sixteen(stagger: bool, dearest: int) -> None:
    steps = 4 * BLOCK_SIZE
    scheduler = bench._filled(32, steps, stagger=stagger)
    pool = scheduler.pool
    taken = []
    for _ in range(steps):
        used = pool.num_used
        batch = scheduler.schedule()
        taken.append(pool.num_used - used)
        assert (batch.decode_tokens, batch.prefill_tokens, batch.preempted) == (32, 0, ())
        assert len(scheduler.complete(batch, bench._sampled(batch))) == 32
        assert not any(scheduler.reached_limit(sequence) for sequence in scheduler.running)
    scheduler.check_integrity()
    assert sum(taken) == 32 * 4
    assert max(taken) == dearest
    full = sum(sequence.num_computed // BLOCK_SIZE for sequence in scheduler.running)
    assert len(pool._by_hash) == full, "every full block was hashed and registered, and none is shared"


def costs(step_us: float) -> StepCost:
    return StepCost(256, step_us - 2, 1.0, 1.0, aligned_us=2 * step_us)


@pytest.mark.parametrize(("step_us", "code"), [(400.0, 0), (999.0, 0), (1000.0, 1)])
def test_a_millisecond_is_too_much(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, step_us: float, code: int
) -> None:
    monkeypatch.setattr(bench, "NUM_SEQUENCES", (256,))
    monkeypatch.setattr(bench, "measure", lambda _num_sequences: costs(step_us))
    path = tmp_path / "costs.json"
    assert bench_scheduler(path) == code
    header, row = capsys.readouterr().out.splitlines()
    assert "per sequence" in header
    assert row.split()[0] == "256"
    (saved,) = json.loads(path.read_text())
    assert saved["sequence_us"] == pytest.approx(step_us / 256)


def test_the_command_needs_neither_a_model_nor_torch() -> None:
    script = (
        "import sys\n"
        "from engine.bench import scheduler\n"
        "scheduler.NUM_SEQUENCES = (1, 256)\n"
        "measure = scheduler.measure\n"
        "scheduler.measure = lambda count: measure(count, steps=16, repetitions=1)\n"
        "from engine.cli.app import app\n"
        "app(['bench', 'scheduler'], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["sequences", "1", "256"]
