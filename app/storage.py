"""Whether the program may write where it wants to. No Qt."""

import tempfile
from pathlib import Path


def why_not_writable(folder: Path) -> str:
    """A reason in half a sentence; empty when a file can be made there. Makes the folder if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)
