"""The table as a test: quick for every family, whole under `pytest -m long`; and red for every fault."""

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from transformers.utils import logging as transformers_logging

from tests.equality.__main__ import main
from tests.equality.families import FAMILIES, Checkpoint, build
from tests.equality.faults import FAULTS, equal_hashes
from tests.equality.scenarios import QUICK, SCENARIOS, WHOLE
from tests.equality.table import Row, check_family

ALL = tuple(SCENARIOS)
NOTICED = [
    ("shifted-rope", "llama", ALL),
    ("shifted-rope", "mistral", ALL),
    ("shifted-rope", "llama-bf16", ALL),
    ("stale-block", "llama", ("prefix hit",)),
    ("stale-block", "mistral", ("prefix hit",)),
    ("mask-off-by-one", "llama", ALL),
    ("mask-off-by-one", "mistral", ALL),
    ("mask-off-by-one", "llama-bf16", ALL),
    ("chunk-mask-off-by-one", "llama", ALL),
    ("chunk-mask-off-by-one", "llama-bf16", ALL),
    ("window-off-by-one", "mistral", ALL),
    ("window-off-by-one", "mistral-bf16", ALL),
    ("window-off-by-one", "qwen2-windows", ALL),
    ("wrong-prefix", "llama", ("prefix hit", "cancel", "resize")),
    ("wrong-prefix", "llama-bf16", ("prefix hit", "cancel", "resize")),
    ("lost-token", "llama", ("preemption",)),
    ("lost-token", "llama-bf16", ("preemption",)),
]
"""Each fault, a family, and the scenarios that it has to turn red there, by what is said and not by the books alone."""


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    yield
    transformers_logging.enable_progress_bar()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """One of a family's name, built once."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return functools.cache(lambda name: build(name, folder))


@pytest.fixture
def llama(checkpoint: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoint("llama")


def assert_good(row: Row) -> None:
    assert row.problems == ()
    assert {name: verdict.mismatches for name, verdict in row.verdicts.items()} == dict.fromkeys(SCENARIOS, 0)
    assert all(verdict.positions for verdict in row.verdicts.values())
    assert row.is_good


@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_to_compute_gives_the_references_answers(
    family: str, checkpoint: Callable[[str], Checkpoint]
) -> None:
    assert_good(check_family(checkpoint(family), QUICK))


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_to_compute_gives_the_references_answers_whole(
    family: str, checkpoint: Callable[[str], Checkpoint]
) -> None:
    assert_good(check_family(checkpoint(family), WHOLE))


def test_equal_hashes_of_different_texts_change_no_answer(llama: Checkpoint) -> None:
    """All blocks at one depth have one hash; what is found is compared, so that hits are only rarer."""
    with equal_hashes():
        row = check_family(llama, QUICK)
    assert row.total.positions
    assert row.total.mismatches == 0
    assert not [problem for problem in row.problems if "did not happen" not in problem]


@pytest.mark.parametrize(("fault", "family", "scenarios"), NOTICED, ids=[f"{row[0]}-{row[1]}" for row in NOTICED])
def test_a_fault_is_noticed(
    fault: str, family: str, scenarios: tuple[str, ...], checkpoint: Callable[[str], Checkpoint]
) -> None:
    with FAULTS[fault]():
        row = check_family(checkpoint(family), QUICK, scenarios)
    assert not row.is_good
    assert all(verdict.mismatches for verdict in row.verdicts.values()), row


def test_every_fault_is_tried() -> None:
    assert {fault for fault, _, _ in NOTICED} == set(FAULTS)


def test_a_fault_leaves_nothing_behind(llama: Checkpoint) -> None:
    for fault in FAULTS.values():
        with fault():
            pass
    assert_good(check_family(llama, QUICK))


@pytest.mark.parametrize(("arguments", "exit_code"), [([], 0), (["--fault", "shifted-rope"], 1)])
def test_the_exit_code_says_whether_anything_differs(
    arguments: list[str], exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quick", "--family", "llama", *arguments]) == exit_code
    out = capsys.readouterr().out
    assert all(scenario in out for scenario in SCENARIOS)
    assert ("Nothing differs." in out) == (exit_code == 0)
