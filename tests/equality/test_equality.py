"""The table as a test: quick for every family, whole under `pytest -m long`; and red for every fault."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers.utils import logging as transformers_logging

from tests.equality.__main__ import main
from tests.equality.families import FAMILIES, Checkpoint, build
from tests.equality.faults import FAULTS, equal_hashes
from tests.equality.scenarios import QUICK, SCENARIOS, WHOLE
from tests.equality.table import Row, check_family

NOTICED_BY = {
    "shifted-rope": ("batching", "chunked prefill", "prefix hit", "preemption", "cancel", "resize"),
    "mask-off-by-one": ("batching", "chunked prefill", "prefix hit", "preemption", "cancel", "resize"),
    "stale-block": ("prefix hit",),
    "wrong-prefix": ("prefix hit", "cancel", "resize"),
    "lost-token": ("preemption",),
}
"""The scenarios that each fault has to turn red, by what is said and not by the books alone."""


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    yield
    transformers_logging.enable_progress_bar()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return build("llama", tmp_path_factory.mktemp("checkpoint"))


def assert_good(row: Row) -> None:
    assert row.problems == ()
    assert {name: verdict.mismatches for name, verdict in row.verdicts.items()} == dict.fromkeys(SCENARIOS, 0)
    assert all(verdict.positions for verdict in row.verdicts.values())
    assert row.is_good


@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_to_compute_gives_the_references_answers(family: str, tmp_path: Path) -> None:
    assert_good(check_family(build(family, tmp_path), QUICK))


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_to_compute_gives_the_references_answers_whole(family: str, tmp_path: Path) -> None:
    assert_good(check_family(build(family, tmp_path), WHOLE))


def test_equal_hashes_of_different_texts_change_no_answer(llama: Checkpoint) -> None:
    """All blocks at one depth have one hash; what is found is compared, so that hits are only rarer."""
    with equal_hashes():
        row = check_family(llama, QUICK)
    assert row.total.positions
    assert row.total.mismatches == 0
    assert not [problem for problem in row.problems if "did not happen" not in problem]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, llama: Checkpoint) -> None:
    with FAULTS[fault]():
        row = check_family(llama, QUICK, NOTICED_BY[fault])
    assert not row.is_good
    assert all(verdict.mismatches for verdict in row.verdicts.values()), row


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
