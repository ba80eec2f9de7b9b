"""Downloads one wheel with pip as a child process: pip knows the user's index, proxy and certificates, we do not.

The wheel is only data here: nothing of it is installed or run, and its hash is checked by pip before we see it.
"""

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.catalog.fetch import Cancelled, FetchCancelledError, FetchProgress, OnProgress

OUR_PIP = (sys.executable, "-m", "pip")
POLL_S = 0.1
RETRIES = "2"  # somebody waits; pip's own five take a quarter of a minute without a network
END_S = 2.0
# How to reach an index. Everything else in the environment could change what is downloaded, or refuse its hash.
KEPT_PIP_SETTINGS = frozenset(
    f"PIP_{name}"
    for name in (
        "CERT", "CLIENT_CERT", "CONFIG_FILE", "DEFAULT_TIMEOUT", "EXTRA_INDEX_URL", "FIND_LINKS", "INDEX_URL",
        "KEYRING_PROVIDER", "NO_INDEX", "PROXY", "RETRIES", "TIMEOUT", "TRUSTED_HOST",
    )
)  # fmt: skip


class PipError(Exception):
    """pip did not deliver; `output` is what it said."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedWheel:
    """Exactly one file of a package index."""

    package: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """A line for `pip --require-hashes -r`."""
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n"


def download_wheel(
    wheel: PinnedWheel,
    folder: Path,
    on_progress: OnProgress,
    cancelled: Cancelled,
    *,
    pip: Sequence[str] = OUR_PIP,
) -> Path:
    """Put the wheel into `folder`, which must exist and be empty; leftovers stay in it for the caller to remove.

    Raises:
        PipError: pip is missing, found nothing, or the hash is wrong.
        FetchCancelledError: `cancelled` said so; the child has ended.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(wheel.requirement, encoding="utf-8")
    command = [
        *pip, "download", "--no-deps", "--require-hashes", "-r", str(requirements),
        "--progress-bar", "raw", "--no-cache-dir", "--no-input", "-d", str(folder),
    ]  # fmt: skip
    output = _run(command, _environment(folder), on_progress, cancelled)
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise PipError(output)
    return found[0]


def _environment(folder: Path, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.upper().startswith("PIP_") or name in KEPT_PIP_SETTINGS
    }
    # An empty constraints file also overrules one named in a pip.conf: pinned hashes and constraints do not mix.
    ours = {
        "PIP_CONSTRAINT": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": kept.get("PIP_RETRIES", RETRIES),
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "TMPDIR": str(folder),
    }
    return kept | ours


def _run(command: list[str], environment: dict[str, str], on_progress: OnProgress, cancelled: Cancelled) -> str:
    """Run pip to its end; returns what it said besides progress."""
    # A session of its own: Ctrl+C in the terminal is ours to handle, not the child's.
    try:
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PipError(str(error)) from error
    said: list[str] = []
    with child:
        try:
            assert child.stdout is not None
            for line in _lines(child.stdout, cancelled):
                progress = _parse_progress(line)
                if progress is not None:
                    on_progress(progress)
                    continue
                said.append(line)
                if "Retrying" in line:
                    on_progress(FetchProgress("Connecting again"))
        except BaseException:
            _end(child)
            raise
    output = "\n".join(said)
    if child.returncode != 0:
        raise PipError(output)
    return output


def _lines(pipe: IO[bytes], cancelled: Cancelled) -> Iterator[str]:
    """Lines as they come, asking between them whether they are still wanted."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if cancelled():
                raise FetchCancelledError
            if not selector.select(POLL_S):
                continue
            chunk = os.read(pipe.fileno(), 65_536)
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
            if not chunk:
                break
    if rest:
        yield rest.decode(errors="replace")


def _parse_progress(line: str) -> FetchProgress | None:
    """A line of `--progress-bar raw`: "Progress 262144 of 92871040" (the total is missing when unknown)."""
    match line.split():
        case ["Progress", done, "of", total] if done.isdecimal() and total.isdecimal():
            return FetchProgress("Downloading", int(done), int(total))
        case ["Progress", done] if done.isdecimal():
            return FetchProgress("Downloading", int(done))
        case _:
            return None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
