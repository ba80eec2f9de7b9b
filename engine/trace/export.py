"""Writes what was measured as JSON: to a file that was checked before the work began, or to stdout."""

import json
import sys
from pathlib import Path

from engine.errors import UsageError


def check_writable(path: Path) -> None:
    """Find out before the work is done, not after it.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise UsageError(f"The file {path} cannot be written: {error.strerror}. Choose another place.") from error


def write_json(path: Path, value: object) -> None:
    """One document, readable by people too."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def print_json(value: object) -> None:
    """One document on stdout."""
    json.dump(value, sys.stdout, indent=1)
    sys.stdout.write("\n")
