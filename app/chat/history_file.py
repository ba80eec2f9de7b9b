"""Opens the file that conversations are kept in: checks before it touches, copies before it migrates. No Qt.

Owns the schema. A file that is damaged, foreign or from a newer version is refused with a sentence and left alone.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.errors import EngineError

APPLICATION_ID = 0x4B565363  # "KVSc"
HEADER_BYTES = 100  # https://www.sqlite.org/fileformat.html#the_database_header
CHECKED_BYTES = 64 * 2**20  # a larger file would hold up the first paint
MAGIC = b"SQLite format 3\0"

MIGRATIONS = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created_s REAL NOT NULL,
        updated_s REAL NOT NULL,
        system_prompt TEXT NOT NULL DEFAULT '',
        deleted_s REAL
    );
    CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        state TEXT NOT NULL,
        message TEXT NOT NULL DEFAULT '',
        prompt_tokens INTEGER,
        new_tokens INTEGER,
        cached_tokens INTEGER,
        ttft_s REAL,
        tokens_per_s REAL,
        reason TEXT
    );
    CREATE INDEX turns_by_position ON turns (conversation_id, position);
    """,
    """
    ALTER TABLE turns ADD COLUMN token_ids BLOB;
    ALTER TABLE turns ADD COLUMN model TEXT NOT NULL DEFAULT '';
    CREATE TABLE drafts (conversation_id TEXT PRIMARY KEY, text TEXT NOT NULL);
    """,
)
"""The n-th script leads from schema n to n + 1. Scripts that were released never change."""


class HistoryError(EngineError):
    """Conversations cannot be read or kept. The text says what happened to which file, and what to try."""


@contextmanager
def explaining(path: Path | None) -> Iterator[None]:
    """Turn SQLite's and the system's errors into sentences."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(_sentence(error, path)) from error


def _sentence(error: Exception, path: Path | None) -> str:
    place = str(path) if path is not None else "memory"
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"The conversations in {place} are damaged ({error}). The file was left as it is; move it away to start "
            "afresh, or choose another folder with --data-dir."
        )
    if primary == sqlite3.SQLITE_FULL:
        return f"The disk that holds {place} is full. Make room, or new messages will not be kept."
    if primary == sqlite3.SQLITE_BUSY:
        return f"Another program holds {place}. Close it, or choose another folder with --data-dir."
    return (
        f"Conversations cannot be kept in {place} ({error}). Make the folder writable, or choose another one with "
        "--data-dir."
    )


def open_file(path: Path, migrations: Sequence[str] = MIGRATIONS) -> sqlite3.Connection:
    """A connection for the writer, with the current schema.

    Raises:
        HistoryError: the folder cannot be written, or the file is damaged, foreign or from a newer version.
    """
    with explaining(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_header(path, len(migrations))
        _make_private(path)
        connection = connect(str(path))
        try:
            _prepare(connection, path, migrations)
        except BaseException:
            connection.close()
            raise
    return connection


def open_memory(name: str) -> sqlite3.Connection:
    """The same for conversations that are not kept."""
    connection = connect(memory_address(name))
    _migrate(connection, MIGRATIONS)
    return connection


def memory_address(name: str) -> str:
    """An address that several connections of this process can share."""
    return f"file:{name}?mode=memory&cache=shared"


def connect(address: str) -> sqlite3.Connection:
    """Any connection: explicit transactions, foreign keys on, usable from the one thread that it is handed to."""
    connection = sqlite3.connect(
        address, isolation_level=None, check_same_thread=False, uri=address.startswith("file:"), timeout=5.0
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _make_private(path: Path) -> None:
    """A new file is for its owner alone; SQLite gives what it puts beside a file the same permissions."""
    if not path.exists():
        path.touch(mode=0o600)


def _check_header(path: Path, known_version: int) -> None:
    """Look at the file's first bytes, so that a file which is not ours is not even opened by SQLite."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return
    if not header:
        return
    version = int.from_bytes(header[60:64])
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise HistoryError(
            f"{path} is damaged or no file of conversations. It was left as it is; move it away to start afresh, or "
            "choose another folder with --data-dir."
        )
    _check_version(path, version, known_version)


def _check_version(path: Path, version: int, known_version: int) -> None:
    if version > known_version:
        raise HistoryError(
            f"The conversations in {path} were written by a newer KVScope (schema {version}; this one knows "
            f"{known_version}). Nothing was changed. Update KVScope, or choose another folder with --data-dir."
        )


def _prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    version = _pragma(connection, "user_version")
    _check_version(path, version, len(migrations))
    is_empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    if not is_empty and _pragma(connection, "application_id") != APPLICATION_ID:
        raise HistoryError(
            f"{path} is a database of another program. It was left as it is; choose another folder with --data-dir."
        )
    damage = "ok"
    if path.stat().st_size <= CHECKED_BYTES:
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise HistoryError(
            f"The conversations in {path} are damaged ({damage}). The file was left as it is; move it away to start "
            "afresh, or choose another folder with --data-dir."
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if version < len(migrations):
        if not is_empty:
            _back_up(connection, path, version)
        _migrate(connection, migrations)
    # A folder that cannot be written is found out now, not with the first message.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
    connection.execute("COMMIT")


def _back_up(connection: sqlite3.Connection, path: Path, version: int) -> None:
    copy_path = path.with_name(f"{path.name}.schema-{version}.backup")
    _make_private(copy_path)
    copy = sqlite3.connect(copy_path)
    try:
        connection.backup(copy)
    finally:
        copy.close()


def _migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """All scripts that are missing, in one transaction."""
    version = _pragma(connection, "user_version")
    script = "".join(migrations[version:])
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE; {script} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {len(migrations)}; COMMIT;"
        )
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
