"""The history against files: what is kept, what is refused, and what a killed process loses."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.conversation import Conversation, Role, Turn, TurnState, TurnStats
from app.chat.history import History, HistoryError
from app.chat.history_file import APPLICATION_ID, MIGRATIONS

ROOT = Path(__file__).parents[3]
STATS = TurnStats(prompt_tokens=7, new_tokens=3, cached_tokens=0, ttft_s=None, tokens_per_s=41.5, reason="eos")


def conversation(name: str, updated_s: float = 1.0) -> Conversation:
    return Conversation(id=name, title=f"Title {name}", created_s=0.5, updated_s=updated_s, system_prompt="Be brief.")


def turn(name: str, owner: str = "a", position: int = 0, text: str = "text") -> Turn:
    return Turn(id=name, conversation_id=owner, position=position, role=Role.ASSISTANT, text=text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.sqlite3"


@pytest.fixture(params=["saved", "unsaved"])
def history(request: pytest.FixtureRequest, path: Path) -> Iterator[History]:
    opened = History.open(path) if request.param == "saved" else History.unsaved()
    yield opened
    opened.close()


def test_what_was_saved_is_read_back(history: History) -> None:
    history.save_conversation(conversation("a", updated_s=1))
    history.save_conversation(conversation("b", updated_s=2))
    turns = (
        replace(turn("t1"), role=Role.USER),
        replace(turn("t2", position=1), stats=STATS, state=TurnState.STOPPED, token_ids=(0, 5, 2**32 - 1), model="M"),
        replace(turn("t3", position=2), state=TurnState.FAILED, message="No room."),
    )
    for each in turns:
        history.save_turn(each)
    history.flush()
    assert history.conversations() == (conversation("b", 2), conversation("a", 1))
    assert history.turns("a") == turns
    assert history.turns("b") == ()


def test_saving_again_changes(history: History) -> None:
    history.save_conversation(conversation("a"))
    history.save_turn(turn("t1"))
    history.save_conversation(replace(conversation("a"), title="New", updated_s=9))
    changed = replace(turn("t1"), text="more", stats=STATS, token_ids=(1, 2), model="M")
    history.save_turn(changed)
    history.flush()
    assert history.conversations()[0].title == "New"
    assert history.turns("a") == (changed,)
    history.save_turn(turn("t1"))
    history.flush()
    assert history.turns("a") == (turn("t1"),)


@pytest.mark.parametrize("token_ids", [(-1,), (2**32,), (1, 2**70)])
def test_ids_that_no_tokenizer_has_are_left_out_and_the_text_stays(
    history: History, token_ids: tuple[int, ...]
) -> None:
    history.save_conversation(conversation("a"))
    history.save_turn(replace(turn("t1"), token_ids=token_ids))
    history.flush()
    assert history.failure is None
    assert history.turns("a") == (turn("t1"),)


@pytest.mark.parametrize("damage", ["x'010203'", "'text'", "7"])
def test_damaged_ids_are_left_out_and_the_text_stays(path: Path, damage: str) -> None:
    history = History.open(path)
    history.save_conversation(conversation("a"))
    history.save_turn(replace(turn("t1"), token_ids=(1, 2)))
    history.flush()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"UPDATE turns SET token_ids = {damage}")
    assert history.turns("a") == (turn("t1"),)
    history.close()


def test_a_file_of_the_first_version_goes_on_with_everything_in_it(path: Path) -> None:
    """Written as the first version wrote it, without a line of ours but its schema."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(MIGRATIONS[0])
        old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
        old.execute("INSERT INTO conversations VALUES ('a', 'Title a', 0.5, 1.0, 'Be brief.', NULL)")
        figures = "7, 3, 0, NULL, 41.5, 'eos'"
        old.execute(f"INSERT INTO turns VALUES ('t1', 'a', 0, 'assistant', 'text', 'complete', '', {figures})")
    history = History.open(path)
    assert history.conversations() == (conversation("a"),)
    assert history.turns("a") == (replace(turn("t1"), stats=STATS),)
    history.save_turn(replace(turn("t1"), token_ids=(1,), model="M"))
    history.close()
    again = History.open(path)
    assert again.turns("a") == (replace(turn("t1"), token_ids=(1,), model="M"),)
    again.close()
    with closing(sqlite3.connect(path.with_name(f"{path.name}.schema-1.backup"))) as copy:
        assert copy.execute("SELECT text FROM turns").fetchall() == [("text",)]


def test_a_final_turn_is_never_overwritten_by_an_older_streaming_state(history: History) -> None:
    history.save_conversation(conversation("a"))
    for length in range(1, 200):
        history.stream_turn(replace(turn("t1"), text="x" * length, state=TurnState.STREAMING))
    history.save_turn(replace(turn("t1"), text="final"))
    history.flush()
    assert history.turns("a")[0].text == "final"


def test_flush_writes_streaming_turns(history: History) -> None:
    history.save_conversation(conversation("a"))
    history.stream_turn(replace(turn("t1"), text="so far", state=TurnState.STREAMING))
    history.flush()
    assert history.turns("a")[0].text == "so far"


def test_drafts_are_kept_changed_and_forgotten(history: History) -> None:
    history.save_conversation(conversation("a"))
    for text in ("l", "la", "later"):
        history.save_draft("a", text)
    history.save_draft("", "new")
    history.flush()
    assert history.drafts() == {"a": "later", "": "new"}
    history.save_draft("a", "")
    history.flush()
    assert history.drafts() == {"": "new"}


def test_a_draft_goes_with_its_conversation(path: Path) -> None:
    first = History.open(path)
    first.save_conversation(conversation("a"))
    first.save_draft("a", "later")
    first.save_draft("", "new")
    first.delete("a")
    first.flush()
    assert first.drafts() == {"a": "later", "": "new"}, "it can be restored"
    first.close()
    second = History.open(path)
    assert second.drafts() == {"": "new"}
    second.close()


def test_search_looks_at_titles_and_texts_in_any_case(history: History) -> None:
    for name in "abc":
        history.save_conversation(conversation(name))
    history.save_turn(turn("t1", "b", text="Die STRASSE nach Zürich"))
    history.flush()
    assert history.search("zÜrich") == {"b"}
    assert history.search("straße") == {"b"}
    assert history.search("TITLE C") == {"c"}
    assert history.search("title") == {"a", "b", "c"}
    assert history.search("%") == frozenset()


def test_a_deleted_conversation_can_be_restored(history: History) -> None:
    history.save_conversation(conversation("a"))
    history.save_turn(turn("t1"))
    history.delete("a")
    history.flush()
    assert history.conversations() == ()
    history.restore("a")
    history.flush()
    assert history.conversations() == (conversation("a"),)
    assert history.turns("a") == (turn("t1"),)


def test_what_stays_deleted_is_gone_with_its_turns_after_the_next_start(path: Path) -> None:
    first = History.open(path)
    first.save_conversation(conversation("a"))
    first.save_turn(turn("t1"))
    first.delete("a")
    first.close()
    second = History.open(path)
    assert second.conversations() == ()
    assert second.turns("a") == ()
    second.close()


def test_close_writes_everything_ends_the_thread_and_leaves_one_file(path: Path) -> None:
    history = History.open(path)
    history.save_conversation(conversation("a"))
    history.stream_turn(replace(turn("t1"), text="late", state=TurnState.STREAMING))
    history.close()
    history.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "history-writer"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    again = History.open(path)
    assert again.turns("a")[0].text == "late"
    assert again.turns("a")[0].state is TurnState.STOPPED, "a turn that was left open is stopped"
    again.close()


KILLED = """
import sys, threading, time
from dataclasses import replace
from pathlib import Path
from app.chat.conversation import Conversation, Role, Turn, TurnState
from app.chat.history import History

history = History.open(Path(sys.argv[1]))
history.save_conversation(Conversation(id="a", title="t", created_s=0, updated_s=0))
turn = Turn(id="t1", conversation_id="a", position=0, role=Role.ASSISTANT, text="", state=TurnState.STREAMING)
pause = threading.Event()
while True:
    turn = replace(turn, text=turn.text + "x")
    history.stream_turn(turn)
    print(len(turn.text), time.monotonic(), flush=True)
    pause.wait(0.005)
"""


def test_a_killed_process_loses_at_most_a_second_of_a_streaming_answer(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline()]
    while float(lines[-1].split()[1]) - float(lines[0].split()[1]) < 2.0:
        lines.append(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    lines += child.stdout.readlines()
    child.wait()
    child.stdout.close()
    given = [(int(length), float(time_s)) for length, time_s in (line.split() for line in lines)]
    a_second_before = max(length for length, time_s in given if time_s <= given[-1][1] - 1.0)
    history = History.open(path)
    (kept,) = history.turns("a")
    history.close()
    assert kept.state is TurnState.STOPPED
    assert a_second_before <= len(kept.text) <= given[-1][0]


@pytest.mark.parametrize(
    "content", [b"not a database, but somebody's notes\n" * 20, b"short", b"SQLite format 3\0" + bytes(200)]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=r"conversations\.sqlite3.*left as it is.*--data-dir"):
        History.open(path)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_damaged_page_is_refused_and_left_alone(path: Path) -> None:
    history = History.open(path)
    history.save_conversation(conversation("a"))
    history.save_turn(turn("t1", text="x" * 50_000))
    history.close()
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(HistoryError, match="damaged"):
        History.open(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE notes (text TEXT)")
    other.close()
    content = path.read_bytes()
    with pytest.raises(HistoryError, match="another program"):
        History.open(path)
    assert path.read_bytes() == content


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    History.open(path, (*MIGRATIONS, "ALTER TABLE turns ADD COLUMN colour TEXT;")).close()
    content = path.read_bytes()
    with pytest.raises(HistoryError, match=rf"schema {len(MIGRATIONS) + 1}.*Nothing was changed"):
        History.open(path)
    assert path.read_bytes() == content


def test_a_migration_keeps_everything_and_a_copy_from_before(path: Path) -> None:
    old = History.open(path)
    old.save_conversation(conversation("a"))
    old.save_turn(turn("t1"))
    old.close()
    new = History.open(path, (*MIGRATIONS, "ALTER TABLE turns ADD COLUMN colour TEXT;"))
    assert new.turns("a") == (turn("t1"),)
    new.close()
    backup = History.open(path.with_name(f"{path.name}.schema-{len(MIGRATIONS)}.backup"))
    assert backup.turns("a") == (turn("t1"),)
    backup.close()


def test_nobody_else_can_read_what_was_written(path: Path) -> None:
    """Nor the log and the copies that SQLite puts beside it, whatever the user's mask is."""
    before = os.umask(0o022)
    try:
        old = History.open(path)
        old.save_conversation(conversation("a"))
        old.flush()
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        old.close()
        History.open(path, (*MIGRATIONS, "ALTER TABLE turns ADD COLUMN colour TEXT;")).close()
        modes |= {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert len(modes) >= 3
    assert set(modes.values()) == {0o600}


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    old = History.open(path)
    old.save_conversation(conversation("a"))
    old.close()
    with pytest.raises(HistoryError):
        History.open(path, (*MIGRATIONS, "CREATE TABLE half (x); SELECT nonsense FROM nowhere;"))
    again = History.open(path)
    assert again.conversations() == (conversation("a"),)
    again.close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match=r"cannot be kept in .*--data-dir"):
        History.open(tmp_path / "file" / "conversations.sqlite3")


def test_a_read_only_folder_is_one_sentence() -> None:
    code = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from app.chat.history import History, HistoryError
        if os.geteuid() == 0:
            os.seteuid(65534)  # root may write anywhere
        try:
            History.open(Path(sys.argv[1]))
        except HistoryError as error:
            print(error)
    """)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", code, f"{folder}/conversations.sqlite3"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        Path(folder).chmod(0o755)
    assert "cannot be kept in" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_write_that_fails_is_reported_and_tried_again(path: Path) -> None:
    history = History.open(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON conversations BEGIN SELECT RAISE(ABORT, 'no room'); END")
    history.save_conversation(conversation("a"))
    history.flush()
    assert "no room" in str(history.failure)
    other.execute("DROP TRIGGER full")
    other.close()
    history.save_turn(turn("t1"))
    history.close()
    assert history.failure is None
    again = History.open(path)
    assert again.turns("a") == (turn("t1"),)
    again.close()
