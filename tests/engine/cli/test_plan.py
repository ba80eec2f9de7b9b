"""`kvscope plan`: exit codes and JSON, from a snapshot and from a model."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cli.conftest import Terminal, assert_one_sentence

CASES = json.loads((Path(__file__).parent.parent / "memory" / "memory_plan.json").read_text())


def case_file(folder: Path, *, refused: bool) -> tuple[Path, dict[str, Any]]:
    """The first case that is refused, or planned, as a snapshot file."""
    case = next(each for each in CASES if each["expect"]["error"] is refused)
    path = folder / "snapshot.json"
    path.write_text(json.dumps(case["snapshot"]))
    return path, case


def test_a_plan(terminal: Terminal, tmp_path: Path) -> None:
    path, case = case_file(tmp_path, refused=False)
    done = terminal.types("plan", "--snapshot", path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    expected = {name: value for name, value in case["expect"].items() if name != "error"}
    assert json.loads(done.stdout) == expected | {"old_formula_blocks": case["old_formula_blocks"]}


def test_a_refusal(terminal: Terminal, tmp_path: Path) -> None:
    path, case = case_file(tmp_path, refused=True)
    done = terminal.types("plan", "--snapshot", path, "--json")
    assert done.returncode == 3
    said = json.loads(done.stdout)
    assert said.keys() == {"error", "limited_by", "shortfall_bytes", "advice", "old_formula_blocks"}
    assert -(-said["shortfall_bytes"] // 2**20) == case["expect"]["shortfall_mib"]
    assert said["limited_by"] == case["expect"]["limited_by"]
    assert done.stderr == said["error"] + "\n"
    assert_one_sentence(done.stderr)


@pytest.mark.parametrize("content", ["{}", "[]", "nothing", None])
def test_a_snapshot_that_is_none(terminal: Terminal, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "snapshot.json"
    if content is not None:
        path.write_text(content)
    done = terminal.types("plan", "--snapshot", path, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_sentence(done.stderr)


def test_a_model_on_this_machine(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("plan", "-m", tiny_gguf, "--dtype", "float32", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    # 16 slots of 256 tokens: a tiny model is limited by what is of use.
    assert (said["usable_blocks"], said["tokens"], said["limited_by"]) == (256, 4096, "max_useful")
    assert said["max_model_len_tokens"] == 256


def test_the_attention_and_what_stands_in_the_way_of_others(terminal: Terminal, tiny_gguf: Path) -> None:
    done = terminal.types("plan", "-m", tiny_gguf, "--dtype", "float32", "--device", "cpu")
    assert "\nAttention: gather + SDPA\n  not the paged Triton kernels: needs an NVIDIA card\n" in done.stdout
    assert "\n  not the paged kernel for CPUs: needs bfloat16 on a CPU\n" in done.stdout
