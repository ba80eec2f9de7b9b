"""The gate looks at most once a second, closes below its floor, opens above it, and says so once."""

import logging
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.events import StepOutput, WaitReason
from engine.memory.pressure import MemoryGate
from tests.fakes.tiny_model import chat_gguf, greedy, tiny_chat_model, tiny_engine

MIB = 2**20


class Machine:
    """Its memory, its clock, and how often somebody looked."""

    def __init__(self) -> None:
        self.available_bytes = 1000 * MIB
        self.now_s = 0.0
        self.num_looks = 0

    def read(self) -> int:
        self.num_looks += 1
        return self.available_bytes

    def gate(self) -> MemoryGate:
        return MemoryGate(floor_bytes=500 * MIB, read_available_bytes=self.read, clock=lambda: self.now_s)


@pytest.mark.parametrize(("available_mib", "is_open"), [(1000, True), (500, True), (499, False), (0, False)])
def test_it_is_open_from_the_floor_on(available_mib: int, is_open: bool) -> None:
    machine = Machine()
    machine.available_bytes = available_mib * MIB
    assert machine.gate().is_open() == is_open


def test_it_looks_once_a_second() -> None:
    machine = Machine()
    gate = machine.gate()
    for _ in range(100):
        assert gate.is_open()
        machine.now_s += 0.05
    assert machine.num_looks == 5
    machine.available_bytes = 0
    machine.now_s += 1.0
    assert not gate.is_open()


def test_it_opens_again_and_warns_once_for_each_time(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    gate = machine.gate()
    said = []
    with caplog.at_level(logging.WARNING):
        for available_mib in (600, 400, 300, 700, 100):
            machine.available_bytes = available_mib * MIB
            machine.now_s += 1.0
            said.append(gate.is_open())
    assert said == [True, False, False, True, False]
    assert [record.getMessage() for record in caplog.records] == [
        f"{mib} MiB of system memory are available, below the 500 MiB that are left alone: new requests wait"
        for mib in (400, 100)
    ]


def run(engine: Engine, machine: Machine) -> list[StepOutput]:
    outputs = []
    while engine.has_work:
        machine.now_s += 1.0
        outputs.append(engine.step())
        engine.check_integrity()
    return outputs


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return chat_gguf(tiny_chat_model(), tmp_path / "tiny.gguf")


def test_an_engine_without_memory_serves_one_after_another(gguf: Path) -> None:
    """Never a deadlock: what runs goes on, and an empty engine takes whoever is next."""
    engine, machine = tiny_engine(gguf), Machine()
    engine._scheduler._gate = machine.gate()
    machine.available_bytes = 0
    for name in "abc":
        engine.submit(greedy(name, list(range(50, 70)), 4))
    outputs = run(engine, machine)
    assert [end.new_tokens for output in outputs for end in output.finished] == [4, 4, 4]
    assert [output.stats.running for output in outputs] == ([1] * 3 + [0]) * 3
    assert {output.stats.waits_for for output in outputs[:8]} == {WaitReason.SYSTEM_MEMORY}
    assert {output.stats.waits_for for output in outputs[8:]} == {None}


def test_memory_that_comes_back_lets_them_in(gguf: Path) -> None:
    engine, machine = tiny_engine(gguf), Machine()
    engine._scheduler._gate = machine.gate()
    machine.available_bytes = 0
    for name in "ab":
        engine.submit(greedy(name, list(range(50, 70)), 20))
    for _ in range(3):
        machine.now_s += 1.0
        assert engine.step().stats.waits_for is WaitReason.SYSTEM_MEMORY
    machine.available_bytes = 1000 * MIB
    machine.now_s += 1.0
    assert engine.step().stats.running == 2
    run(engine, machine)


def test_a_loaded_engine_watches_the_memory_of_this_machine(gguf: Path) -> None:
    gate = tiny_engine(gguf)._scheduler._gate
    assert isinstance(gate, MemoryGate)
    assert 0 < gate.floor_bytes < 2**50
    assert gate.is_open(), "a machine that runs tests is not short of memory"
