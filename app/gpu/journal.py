"""What was ended and what came back: one JSON line per action, for whoever asks later. Only appends."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.gpu.record import ProcessIdentity, ProcessMemory, StopOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One signal that was sent to one process.

    Attributes:
        means: the signal's name.
        free_before_bytes, free_after_bytes: free memory of the device before the release and at its end.
    """

    time: datetime
    process: ProcessMemory
    means: str
    outcome: StopOutcome
    reason: str
    free_before_bytes: int
    free_after_bytes: int

    @property
    def key(self) -> tuple[ProcessIdentity, str, StopOutcome]:
        """What makes two entries the same action."""
        return self.process.identity, self.means, self.outcome

    def as_json(self) -> str:
        """One line."""
        return json.dumps(
            {
                "time": self.time.astimezone(UTC).isoformat(timespec="milliseconds"),
                "pid": self.process.identity.pid,
                "start_ticks": self.process.identity.start_ticks,
                "name": self.process.name,
                "user": self.process.user,
                "command": self.process.command,
                "means": self.means,
                "outcome": self.outcome.name.lower(),
                "reason": self.reason,
                "promised_bytes": self.process.memory_bytes,
                "free_before_bytes": self.free_before_bytes,
                "free_after_bytes": self.free_after_bytes,
            }
        )


class ReleaseJournal:
    """The file. Only its owner may read it, since command lines may hold secrets."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def in_folder(cls, data: Path) -> "ReleaseJournal":
        """The journal below the user's data folder."""
        return cls(data / "released.jsonl")

    def append(self, entries: Iterable[JournalEntry]) -> None:
        """Write the lines in one piece. Raises OSError."""
        text = "".join(entry.as_json() + "\n" for entry in entries)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)


class JournalKeeper:
    """Writes each action of one release once. Trouble with the file is told, never raised: memory goes first."""

    def __init__(self, journal: ReleaseJournal | None) -> None:
        """Keep `journal`, or nothing at all."""
        self._journal = journal
        self._written: set[tuple[ProcessIdentity, str, StopOutcome]] = set()

    def write(self, entries: Iterable[JournalEntry]) -> str:
        """Append what is new. Returns a sentence when that failed, else an empty text."""
        new = {entry.key: entry for entry in entries if entry.key not in self._written}
        if self._journal is None or not new:
            return ""
        self._written |= new.keys()
        try:
            self._journal.append(new.values())
        except OSError as error:
            return f"The journal {self._journal.path} could not be written ({error.strerror})."
        return ""
