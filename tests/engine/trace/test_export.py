"""JSON files: checked before the work, written after it."""

import json
from pathlib import Path

import pytest

from engine.errors import UsageError
from engine.trace.export import check_writable, print_json, write_json


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    check_writable(path)
    write_json(path, {"name": "Größe", "steps": [1, 2]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"name": "Größe", "steps": [1, 2]}
    assert path.read_text().endswith("}\n")


def test_checking_does_not_empty_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    check_writable(path)
    assert path.read_text() == "old"


@pytest.mark.parametrize(("name", "reason"), [("missing/trace.json", "No such file or directory"), ("", "directory")])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"cannot be written: .*{reason}\. Choose another place\."):
        check_writable(tmp_path / name)


def test_printing_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"a": 1}])
    said = capsys.readouterr().out
    assert json.loads(said) == [{"a": 1}]
    assert said.endswith("]\n")
