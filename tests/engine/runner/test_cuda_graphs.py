"""Decode steps from tensors that never move: everything but the capture itself, which needs a card (`tests/gpu`)."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.engine import Engine
from engine.runner.cuda_graphs import DecodeGraphs, Replay, StepTensors, ladder
from engine.runner.model_runner import BatchInputs, ModelRunner
from engine.scheduling.batch import Batch, ScheduledSequence
from engine.scheduling.sequence import Sequence
from tests.fakes.reference import assert_greedy
from tests.fakes.tiny_model import VOCAB, chat_folder, greedy, tiny_chat_model, tiny_engine

CPU = torch.device("cpu")
BLOCK_SIZE = 16


@pytest.mark.parametrize("max_rows", [1, 2, 3, 7, 16, 20, 63, 64, 65, 256, 300, 1000])
def test_every_number_of_rows_has_a_size(max_rows: int) -> None:
    sizes = ladder(max_rows)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == max_rows
    for rows in range(1, max_rows + 1):
        fitting = min(size for size in sizes if size >= rows)
        assert fitting - rows < max(rows, 2), "less than half of a graph is padding"


def decode_step(rng: random.Random) -> list[ScheduledSequence]:
    """Up to six sequences of up to 100 tokens that compute their last one."""
    items = []
    for index in range(rng.randint(1, 6)):
        length = rng.randint(2, 100)
        sequence = Sequence(str(index), [rng.randint(1, 99) for _ in range(length)])
        sequence.num_prompt_tokens = 1
        num_blocks = -(-length // BLOCK_SIZE) + rng.randint(0, 2)
        sequence.block_table = [rng.randint(1, 50) for _ in range(num_blocks)]
        items.append(ScheduledSequence(sequence, length - 1, 1, samples=True))
    return items


@pytest.mark.parametrize("seed", range(5))
def test_the_tensors_hold_the_step_and_harmless_padding(seed: int) -> None:
    rng = random.Random(seed)
    tensors = StepTensors(8, 7, BLOCK_SIZE, CPU)
    for _ in range(20):  # one after the other: nothing of an earlier step shows
        items, padding = decode_step(rng), rng.randint(0, 2)
        rows = len(items)
        size = rows + padding
        tensors.fill(items, size)
        batch = Batch(step=1, items=tuple(items), prefill_tokens=0, decode_tokens=rows, preempted=())
        expected, found = BatchInputs.of(batch, BLOCK_SIZE, CPU), tensors.attention(size)
        assert torch.equal(tensors.token_ids(size)[:rows], expected.token_ids)
        assert torch.equal(tensors.positions(size)[:rows], expected.positions)
        assert torch.equal(found.slots[:rows], expected.attention.slots)
        assert torch.equal(found.decode_lengths[:rows], expected.attention.decode_lengths)
        tables = expected.attention.decode_block_tables
        assert torch.equal(found.decode_block_tables[:rows, : tables.shape[1]], tables)
        assert found.slots[rows:].tolist() == found.decode_block_tables[rows:, 0].tolist() == [0] * padding
        assert found.decode_lengths[rows:].tolist() == [1] * padding
        assert found.num_decode == size


class CountingCapture:
    """Computes again where a card would replay, from tensors that must not have moved."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, compute: Replay) -> Replay:
        compute()

        def replay() -> object:
            self.replays += 1
            return compute()

        return replay  # type: ignore[return-value]


class Replaying:
    """A tiny engine whose decode steps of up to four rows are replayed."""

    def __init__(self, folder: Path) -> None:
        self.capture = CountingCapture()
        self.engine = tiny_engine(folder, max_num_batched_tokens=40, max_num_seqs=6, num_kv_blocks=40)
        runner = self.engine._model.runner
        self.engine._model.runner = ModelRunner(
            runner._decoder, runner._cache, runner._backend, CPU, make_graphs=self._graphs
        )

    def _graphs(self) -> DecodeGraphs:
        runner = self.engine._model.runner
        return DecodeGraphs(
            runner._decoder, runner._backend, runner._cache, max_rows=4, max_tokens=256, device=CPU,
            capture=self.capture,
        )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return chat_folder(tiny_chat_model(), tmp_path / "tiny")


@pytest.fixture
def replaying(folder: Path) -> Iterator[Replaying]:
    made = Replaying(folder)
    yield made
    made.engine.close()


def serve(engine: Engine, prompts: list[list[int]], count: int) -> list[list[int]]:
    answers: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for name, prompt in zip(answers, prompts, strict=True):
        engine.submit(greedy(name, prompt, count))
    while engine.has_work:
        for delta in engine.step().deltas:
            answers[delta.request_id] += delta.token_ids
        engine.check_integrity()
    return list(answers.values())


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(count)
    return [[rng.randrange(VOCAB) for _ in range(rng.choice([1, 15, 16, 17, 50]))] for _ in range(count)]


@pytest.mark.parametrize("count", [1, 3, 6])
def test_answers_are_those_of_a_lone_reference(replaying: Replaying, count: int) -> None:
    """Mixed steps, and steps of more rows than there are graphs for, are computed eagerly."""
    asked = prompts(count)
    answers = serve(replaying.engine, asked, 20)
    assert replaying.capture.replays > 0
    for prompt, answer in zip(asked, answers, strict=True):
        assert len(answer) == 20
        assert_greedy(tiny_chat_model(), prompt, answer)


def test_a_resized_cache_has_graphs_of_its_own(replaying: Replaying) -> None:
    serve(replaying.engine, prompts(2), 10)
    before, old = replaying.capture.replays, replaying.engine._model.runner._graphs
    replaying.engine.resize_cache(60)
    assert replaying.engine._model.runner._graphs is not old
    asked = prompts(3)
    for prompt, answer in zip(asked, serve(replaying.engine, asked, 10), strict=True):
        assert_greedy(tiny_chat_model(), prompt, answer)
    assert replaying.capture.replays > before


def test_without_memory_for_graphs_steps_are_eager(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = tiny_engine(folder)
    runner = engine._model.runner

    def no_memory() -> DecodeGraphs:
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine._model.runner = ModelRunner(runner._decoder, runner._cache, runner._backend, CPU, make_graphs=no_memory)
    assert [len(answer) for answer in serve(engine, prompts(2), 5)] == [5, 5]
    assert "without CUDA graphs" in caplog.text
    engine.close()
