"""What became of the last load, in a small file: a load that ends the program can say nothing itself. No Qt.

The file is there from before a load begins until the model is ready or the load was given up. A load that fails leaves
its reason in it.
"""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from engine.model_names import display_name

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailedLoad:
    """A model that is not loaded by itself again.

    Attributes:
        model: its path.
        reason: sentences for the user.
    """

    model: Path
    reason: str


class LoadRecord:
    """Remembers one load over the end of the program.

    Args:
        path: the file.
        is_kept: whether anything may be written.
    """

    def __init__(self, path: Path, *, is_kept: bool) -> None:
        self._path = path
        self._is_kept = is_kept

    def read(self) -> FailedLoad | None:
        """The load that did not end well, if the last one did not. A file that makes no sense says nothing."""
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
            model, reason = Path(values["model"]), str(values["reason"])
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return FailedLoad(model, reason or _ended_without_a_word(model))

    def begin(self, model: Path) -> None:
        """This model is going to be loaded."""
        self._write(model, "")

    def fail(self, model: Path, reason: str) -> None:
        """It could not be loaded."""
        self._write(model, reason)

    def clear(self) -> None:
        """Nothing is wrong."""
        if self._is_kept:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("the record of the last load stays: %s", error)

    def _write(self, model: Path, reason: str) -> None:
        if not self._is_kept:
            return
        try:
            with self._path.open("w", encoding="utf-8") as file:
                json.dump({"model": str(model.absolute()), "reason": reason}, file)
                file.flush()
                # A driver that takes the whole machine down must not take this along.
                os.fsync(file.fileno())
        except OSError as error:
            log.warning("the load is not recorded: %s", error)


def _ended_without_a_word(model: Path) -> str:
    return (
        f"KVScope ended without a word while it was loading {display_name(model)}. Often that means that the memory "
        "ran out: close other programs, or choose a smaller model."
    )
