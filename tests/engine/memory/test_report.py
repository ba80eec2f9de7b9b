"""Snapshots from files, and plans as people read them."""

import json
from pathlib import Path

import pytest

from engine.errors import RefusalError, UsageError
from engine.memory.plan import PlanRefusedError, plan
from engine.memory.report import format_plan, format_refusal, plan_from_snapshot
from engine.memory.units import bytes_text
from tests.engine.memory.test_plan import CARD, CASES


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


class TestFiles:
    def test_a_file_gives_its_plan(self, tmp_path: Path) -> None:
        case = CASES[0]
        got = plan_from_snapshot(write(tmp_path / "snapshot.json", json.dumps(case["snapshot"])))
        assert json.loads(json.dumps(got.to_json()))["usable_blocks"] == case["expect"]["usable_blocks"]

    def test_a_refusal_is_one(self, tmp_path: Path) -> None:
        case = next(case for case in CASES if case["expect"]["error"])
        with pytest.raises(RefusalError) as caught:
            plan_from_snapshot(write(tmp_path / "snapshot.json", json.dumps(case["snapshot"])))
        assert isinstance(caught.value, PlanRefusedError)
        assert json.loads(json.dumps(caught.value.to_json()))["error"] == str(caught.value)

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", "is not JSON"),
            ("{", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ("[]", "holds a JSON list; it must hold one object"),
            ("true", "holds a JSON truth value"),
            ("null", "holds a JSON null"),
            ("{}", "lacks total_bytes, free_bytes"),
        ],
    )
    def test_a_file_that_is_none(self, tmp_path: Path, text: str, sentence: str) -> None:
        with pytest.raises(UsageError, match=sentence):
            plan_from_snapshot(write(tmp_path / "snapshot.json", text))

    def test_a_binary_file(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        path.write_bytes(b"GGUF\x03\xff\xfe\x00")
        with pytest.raises(UsageError, match="is not JSON"):
            plan_from_snapshot(path)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read: No such file"):
            plan_from_snapshot(tmp_path / "absent.json")
        with pytest.raises(UsageError, match="cannot be read: Is a directory"):
            plan_from_snapshot(tmp_path)


def mib_of(text: str, label: str) -> float:
    """The figure of the row that begins with a label."""
    row = next(line for line in text.splitlines() if line.startswith(label))
    return float(row[len(label) :].split()[0].replace(",", ""))


class TestWaterfall:
    def test_its_rows_add_up(self) -> None:
        text = format_plan(plan(CARD))
        assert mib_of(text, "device") - mib_of(text, "- held, by every process") == mib_of(text, "= free")
        parts = sum(mib_of(text, label) for label in ("- activations of a step", "- graphs", "- safety margin"))
        assert mib_of(text, "= free") - parts == mib_of(text, "= room on the device")
        assert mib_of(text, "KV cache") <= mib_of(text, "= room on the device")
        assert "191 blocks of 28 MiB, one of them for padding" in text
        assert "Limited by the memory that is free on the device." in text

    def test_the_limit_of_the_user_and_a_shorter_context_are_shown(self) -> None:
        case = next(case for case in CASES if case["name"] == "seed act 0.04 GB M 372 MiB")
        snapshot = {**case["snapshot"], "own_limit_fraction": 1.0, "own_bytes": 0}
        text = format_plan(plan(type(CARD).from_json(snapshot)))
        assert "100 % of the device" in text
        assert "shortened from 4,096" in text

    def test_a_refusal_shows_its_sentence_under_the_rows(self) -> None:
        case = next(case for case in CASES if case["name"] == "user util .3")
        with pytest.raises(PlanRefusedError) as caught:
            plan(type(CARD).from_json(case["snapshot"]))
        text = format_refusal(caught.value)
        assert text.endswith(str(caught.value))
        assert "room within your limit" in text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (8_192, "8,192 bytes"),
        (1 << 20, "1 MiB"),
        ((1 << 20) + 1, "2 MiB"),
        (9 << 30, "9,216 MiB"),
        (12 << 30, "12.0 GiB"),
    ],
)
def test_bytes_are_rounded_up(num_bytes: int, text: str) -> None:
    assert bytes_text(num_bytes) == text
