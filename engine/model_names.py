"""What people call a model that lies at a path. Pure text: nothing is opened."""

from pathlib import Path


def display_name(path: Path) -> str:
    """Like "owner/name" for a snapshot of the Hugging Face cache, else the file's or folder's name."""
    path = path.absolute()
    repository = path.parent.parent.name
    if path.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/", 1)
    return path.name
