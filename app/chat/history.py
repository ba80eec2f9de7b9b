"""Keeps conversations in SQLite: one thread writes, the GUI thread reads. No Qt.

Every write is handed to the writer's queue and returns at once. A streaming answer is written half a second
behind, so that a killed program loses no more than that. Reads see what was committed; whoever wants to see their own
writes keeps them, or calls `flush`.
"""

import sqlite3
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from app.chat.conversation import Conversation, Turn
from app.chat.history_file import (
    MIGRATIONS,
    HistoryError,
    connect,
    explaining,
    memory_address,
    open_file,
    open_memory,
)
from app.chat.history_rows import (
    CONVERSATION_COLUMNS,
    TURN_COLUMNS,
    conversation_of,
    save_conversation,
    save_draft,
    save_turn,
    tidy,
    turn_of,
)
from app.chat.history_writer import HistoryWriter

__all__ = ["History", "HistoryError"]


class History:
    """The conversations of this user. Open it with `open` or `unsaved`, and close it.

    Attributes:
        path: the file; None for conversations that are not kept.
    """

    def __init__(self, writer: sqlite3.Connection, reader: sqlite3.Connection, path: Path | None) -> None:
        self.path = path
        self._reader = reader
        self._writer = HistoryWriter(writer, path)
        self._writer.put(tidy)
        self._writer.start()
        self._writer.flush()

    @classmethod
    def open(cls, path: Path, migrations: Sequence[str] = MIGRATIONS) -> "History":
        """Open the file, making it if there is none.

        Raises:
            HistoryError: see `history_file.open_file`.
        """
        writer = open_file(path, migrations)
        try:
            with explaining(path):
                reader = connect(str(path))
                reader.execute("PRAGMA query_only = ON")
        except HistoryError:
            writer.close()
            raise
        return cls(writer, reader, path)

    @classmethod
    def unsaved(cls) -> "History":
        """Conversations that live as long as the program."""
        name = f"kvscope-{uuid.uuid4().hex}"
        writer = open_memory(name)
        reader = connect(memory_address(name))
        # Connections that share a memory would otherwise lock each other out instead of waiting.
        reader.execute("PRAGMA read_uncommitted = ON")
        return cls(writer, reader, None)

    @property
    def is_saved(self) -> bool:
        """Whether conversations outlive the program."""
        return self.path is not None

    @property
    def failure(self) -> HistoryError | None:
        """Why the last write did not succeed; None once all is written."""
        return self._writer.failure

    def conversations(self) -> tuple[Conversation, ...]:
        """All that are not deleted, the newest first."""
        query = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE deleted_s IS NULL ORDER BY updated_s DESC, id"
        return tuple(conversation_of(row) for row in self._read(query))

    def turns(self, conversation_id: str) -> tuple[Turn, ...]:
        """The turns of a conversation, in order.

        Raises:
            HistoryError: they cannot be read.
        """
        query = f"SELECT {TURN_COLUMNS} FROM turns WHERE conversation_id = ? ORDER BY position"
        rows = self._read(query, conversation_id)
        try:
            return tuple(map(turn_of, rows))
        except ValueError as error:
            raise HistoryError(
                f"A message of this conversation is damaged ({error}). Nothing was changed; the other conversations "
                "can be used."
            ) from error

    def search(self, text: str) -> frozenset[str]:
        """Ids of the conversations whose title or turns contain `text`, in any case."""
        wanted = text.casefold()
        with explaining(self.path):
            self._reader.create_function("found", 1, lambda value: wanted in value.casefold(), deterministic=True)
        rows = self._read(
            "SELECT id FROM conversations WHERE found(title) UNION SELECT conversation_id FROM turns WHERE found(text)"
        )
        return frozenset(row[0] for row in rows)

    def save_conversation(self, conversation: Conversation) -> None:
        """Add or change the head of a conversation."""
        self._writer.put(partial(save_conversation, conversation=conversation))

    def save_turn(self, turn: Turn) -> None:
        """Add or change a turn now; its conversation must have been saved before."""
        self._writer.put(partial(save_turn, turn=turn), instead_of=turn.id)

    def stream_turn(self, turn: Turn) -> None:
        """Change a turn that will change again soon: only the newest state of a period is written."""
        self._writer.put_quick(turn.id, partial(save_turn, turn=turn))

    def drafts(self) -> dict[str, str]:
        """What was typed and not sent, by conversation."""
        return dict(self._read("SELECT conversation_id, text FROM drafts"))

    def save_draft(self, conversation_id: str, text: str) -> None:
        """Remember what is typed there; an empty text forgets it. It is written like an answer that streams."""
        self._writer.put_quick(
            f"draft {conversation_id}", partial(save_draft, conversation_id=conversation_id, text=text)
        )

    def delete(self, conversation_id: str) -> None:
        """Hide a conversation; it can be restored until the file is opened again."""
        self._mark_deleted(conversation_id, time.time())

    def restore(self, conversation_id: str) -> None:
        """Undo `delete`."""
        self._mark_deleted(conversation_id, None)

    def flush(self) -> None:
        """Wait until everything handed over so far is written."""
        self._writer.flush()

    def close(self) -> None:
        """Write what is open and end the writer's thread. Repetitions do nothing."""
        self._reader.close()
        self._writer.close()

    def _mark_deleted(self, conversation_id: str, deleted_s: float | None) -> None:
        def mark(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE conversations SET deleted_s = ? WHERE id = ?", (deleted_s, conversation_id))

        self._writer.put(mark)

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with explaining(self.path):
            return self._reader.execute(query, values).fetchall()
