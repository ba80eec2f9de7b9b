import json
import stat
from datetime import UTC, datetime
from pathlib import Path

from app.gpu.journal import JournalEntry, JournalKeeper, ReleaseJournal
from app.gpu.record import StopOutcome
from tests.fakes.probe import process_memory


def entry(means: str = "SIGTERM", outcome: StopOutcome = StopOutcome.EXITED) -> JournalEntry:
    return JournalEntry(
        time=datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC),
        process=process_memory(pid=5, start_ticks=77, name='quote " and\nnew line', memory_bytes=10),
        means=means,
        outcome=outcome,
        reason="",
        free_before_bytes=100,
        free_after_bytes=110,
    )


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_line_per_action_below_the_data_folder(tmp_path: Path) -> None:
    journal = ReleaseJournal.in_folder(tmp_path / "data" / "kvscope")
    journal.append([entry(), entry("SIGKILL", StopOutcome.KILLED)])
    journal.append([entry()])
    assert journal.path == tmp_path / "data" / "kvscope" / "released.jsonl"
    written = lines(journal.path)
    assert [line["means"] for line in written] == ["SIGTERM", "SIGKILL", "SIGTERM"]
    assert written[0] == {
        "time": "2026-05-04T03:02:01.000+00:00",
        "pid": 5,
        "start_ticks": 77,
        "name": 'quote " and\nnew line',
        "user": "me",
        "command": 'quote " and\nnew line',
        "means": "SIGTERM",
        "outcome": "exited",
        "reason": "",
        "promised_bytes": 10,
        "free_before_bytes": 100,
        "free_after_bytes": 110,
    }


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    journal = ReleaseJournal(tmp_path / "released.jsonl")
    journal.append([entry()])
    assert stat.S_IMODE(journal.path.stat().st_mode) & 0o077 == 0


def test_keeper_writes_an_action_once(tmp_path: Path) -> None:
    journal = ReleaseJournal(tmp_path / "released.jsonl")
    keeper = JournalKeeper(journal)
    assert keeper.write([entry()]) == ""
    keeper.write([entry(), entry("SIGKILL", StopOutcome.KILLED)])
    assert len(lines(journal.path)) == 2


def test_keeper_tells_trouble_instead_of_raising(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keeper = JournalKeeper(ReleaseJournal(tmp_path / "file" / "released.jsonl"))
    assert "could not be written" in keeper.write([entry()])


def test_keeper_without_a_journal_keeps_nothing() -> None:
    assert JournalKeeper(None).write([entry()]) == ""
