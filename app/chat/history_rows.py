"""Rows of the history's tables and the values they stand for. No Qt, no threads."""

import sqlite3
import struct
from collections.abc import Sequence
from typing import Any

from app.chat.conversation import Conversation, Role, Turn, TurnState, TurnStats

CONVERSATION_COLUMNS = "id, title, created_s, updated_s, system_prompt"
TURN_COLUMNS = (
    "id, conversation_id, position, role, text, state, message, "
    "prompt_tokens, new_tokens, cached_tokens, ttft_s, tokens_per_s, reason, token_ids, model"
)
NEW_DRAFT = ""  # in the place of a conversation: the one that holds nothing yet

_SAVE_CONVERSATION = f"""
INSERT INTO conversations ({CONVERSATION_COLUMNS}) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    title = excluded.title, updated_s = excluded.updated_s, system_prompt = excluded.system_prompt
"""
_SAVE_TURN = f"""
INSERT INTO turns ({TURN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    text = excluded.text, state = excluded.state, message = excluded.message, prompt_tokens = excluded.prompt_tokens,
    new_tokens = excluded.new_tokens, cached_tokens = excluded.cached_tokens, ttft_s = excluded.ttft_s,
    tokens_per_s = excluded.tokens_per_s, reason = excluded.reason, token_ids = excluded.token_ids,
    model = excluded.model
"""


def conversation_of(row: Sequence[Any]) -> Conversation:
    """The conversation in a row of CONVERSATION_COLUMNS."""
    return Conversation(id=row[0], title=row[1], created_s=row[2], updated_s=row[3], system_prompt=row[4])


def turn_of(row: Sequence[Any]) -> Turn:
    """The turn in a row of TURN_COLUMNS."""
    return Turn(
        id=row[0],
        conversation_id=row[1],
        position=row[2],
        role=Role(row[3]),
        text=row[4],
        state=TurnState(row[5]),
        message=row[6],
        stats=_stats_of(row[7:13]),
        token_ids=unpack_ids(row[13]),
        model=row[14],
    )


def _stats_of(row: Sequence[Any]) -> TurnStats | None:
    if row[5] is None:
        return None
    return TurnStats(
        prompt_tokens=row[0], new_tokens=row[1], cached_tokens=row[2], ttft_s=row[3], tokens_per_s=row[4], reason=row[5]
    )


def pack_ids(token_ids: Sequence[int]) -> bytes | None:
    """Four bytes per id, little-endian; None for none, or for ids that no tokenizer has."""
    try:
        return struct.pack(f"<{len(token_ids)}I", *token_ids) or None
    except struct.error:
        return None


def unpack_ids(blob: object) -> tuple[int, ...]:
    """What `pack_ids` packed. A damaged blob holds no ids: the text beside it is the truth."""
    if not isinstance(blob, bytes) or len(blob) % 4:
        return ()
    return struct.unpack(f"<{len(blob) // 4}I", blob)


def save_conversation(connection: sqlite3.Connection, conversation: Conversation) -> None:
    """Add or change."""
    c = conversation
    connection.execute(_SAVE_CONVERSATION, (c.id, c.title, c.created_s, c.updated_s, c.system_prompt))


def save_turn(connection: sqlite3.Connection, turn: Turn) -> None:
    """Add or change."""
    s = turn.stats
    figures = (s.prompt_tokens, s.new_tokens, s.cached_tokens, s.ttft_s, s.tokens_per_s, s.reason) if s else (None,) * 6
    head = (turn.id, turn.conversation_id, turn.position, turn.role.value, turn.text, turn.state.value, turn.message)
    connection.execute(_SAVE_TURN, (*head, *figures, pack_ids(turn.token_ids), turn.model))


def save_draft(connection: sqlite3.Connection, conversation_id: str, text: str) -> None:
    """Add, change, or with an empty text remove."""
    if text:
        connection.execute("INSERT OR REPLACE INTO drafts VALUES (?, ?)", (conversation_id, text))
    else:
        connection.execute("DELETE FROM drafts WHERE conversation_id = ?", (conversation_id,))


def tidy(connection: sqlite3.Connection) -> None:
    """After opening: turns that a crash left open are stopped, what was deleted is gone."""
    connection.execute(
        "UPDATE turns SET state = ? WHERE state IN (?, ?)", (TurnState.STOPPED, TurnState.QUEUED, TurnState.STREAMING)
    )
    connection.execute("DELETE FROM conversations WHERE deleted_s IS NOT NULL")
    connection.execute(
        "DELETE FROM drafts WHERE conversation_id <> ? AND conversation_id NOT IN (SELECT id FROM conversations)",
        (NEW_DRAFT,),
    )
