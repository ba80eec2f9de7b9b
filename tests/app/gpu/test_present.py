from dataclasses import replace

from app.gpu.present import bytes_text, sample_json, sample_text
from app.gpu.record import MemorySample
from tests.fakes.probe import GIB, FakeProbe, process_memory


def sample_with(*held: int | None) -> MemorySample:
    rows = tuple(process_memory(pid=100 + i, memory_bytes=count) for i, count in enumerate(held))
    return replace(FakeProbe().sample(), processes=rows)


def test_bytes_for_people() -> None:
    assert bytes_text(None) == "unknown"
    assert bytes_text(0) == "0.0 MiB"
    assert bytes_text(3 * GIB // 2) == "1.50 GiB"
    assert bytes_text(-(1 << 20)) == "-1.0 MiB"


def test_unknown_is_written_as_such_and_not_as_zero() -> None:
    text = sample_text(sample_with(GIB, None), "Because.")
    assert "1.00 GiB" in text
    assert "unknown" in text
    assert [row["memory_bytes"] for row in sample_json(sample_with(GIB, None), "")["processes"]] == [GIB, None]


def test_empty_card_says_so() -> None:
    assert "No process holds any of it." in sample_text(sample_with(), "Because.")


def test_long_list_is_summed_up_at_its_end() -> None:
    text = sample_text(sample_with(*[GIB] * 40), "Because.")
    assert "and 10 smaller ones, together 10.00 GiB" in text
    assert len(sample_json(sample_with(*[GIB] * 40), "")["processes"]) == 40


def test_note_and_reason_are_shown() -> None:
    text = sample_text(replace(sample_with(GIB), note="Something is odd."), "Because of the driver.")
    assert text.startswith("Because of the driver.")
    assert text.endswith("Something is odd.")
