"""The record of the last load: what it remembers, and what it makes of files that make no sense."""

import json
from pathlib import Path

import pytest

from app.models.load_record import FailedLoad, LoadRecord

MODEL = Path("/models/big.gguf")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "last-load.json"


def test_a_reason_is_kept_until_it_is_cleared(path: Path) -> None:
    record = LoadRecord(path, is_kept=True)
    assert record.read() is None
    record.fail(MODEL, "There is no room.")
    assert LoadRecord(path, is_kept=True).read() == FailedLoad(MODEL, "There is no room.")
    record.clear()
    record.clear()
    assert record.read() is None


def test_a_load_that_never_ended_has_a_reason_too(path: Path) -> None:
    LoadRecord(path, is_kept=True).begin(MODEL)
    failed = LoadRecord(path, is_kept=True).read()
    assert failed is not None
    assert failed.model == MODEL
    assert "while it was loading big.gguf" in failed.reason


def test_where_nothing_may_be_kept_nothing_is_written_or_removed(path: Path) -> None:
    record = LoadRecord(path, is_kept=False)
    record.begin(MODEL)
    record.fail(MODEL, "No.")
    assert not path.exists()
    LoadRecord(path, is_kept=True).fail(MODEL, "No.")
    record.clear()
    assert record.read() == FailedLoad(MODEL, "No.")


def test_a_folder_that_is_gone_is_no_reason_not_to_load(tmp_path: Path) -> None:
    record = LoadRecord(tmp_path / "gone" / "last-load.json", is_kept=True)
    record.begin(MODEL)
    record.clear()
    assert record.read() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"model": 3, "reason": ""}', json.dumps({"model": "x"})])
def test_a_file_that_makes_no_sense_says_nothing(path: Path, text: str) -> None:
    path.write_text(text)
    assert LoadRecord(path, is_kept=True).read() is None


def test_bytes_that_are_no_text_say_nothing(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    assert LoadRecord(path, is_kept=True).read() is None
