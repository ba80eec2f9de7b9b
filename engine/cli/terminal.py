"""What every command shares: errors as one sentence with an exit code, and progress on stderr."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import typer

from engine.catalog.fetch import FetchProgress
from engine.catalog.local import ModelFolders, hf_hub_folder, resolve
from engine.catalog.starter import fetch_starter
from engine.errors import EngineError
from engine.events import LoadProgress

# Typer carried click's exceptions under several names over its versions: this one has always been an attribute.
_PARSE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
_PROGRESS_PERIOD_S = 0.1
INTERRUPTED = 130


def run(app: typer.Typer, argv: list[str], *, name: str = "kvscope") -> int:
    """Run one command and return its exit code; an error becomes one sentence on stderr."""
    try:
        return int(app(argv, prog_name=name, standalone_mode=False) or 0)
    except _PARSE_ERROR as error:
        return fail(_usage_sentence(error, name), 2)
    except EngineError as error:
        return fail(str(error), error.exit_code)
    except BrokenPipeError:
        return 1
    except OSError as error:
        return fail(f"The output could not be written: {error.strerror or error}.", 1)
    except (typer.Abort, KeyboardInterrupt):
        return fail("Interrupted.", INTERRUPTED)


def stdin_is_terminal() -> bool:
    """Whether somebody can be asked; a closed stdin is nobody."""
    return sys.stdin is not None and sys.stdin.isatty()


def fail(sentence: str, code: int) -> int:
    """Say it on stderr, in one line."""
    print(sentence, file=sys.stderr)
    return code


def _usage_sentence(error: Exception, name: str) -> str:
    """The parser's message, which may lack its full stop, and where to look."""
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else name
    return f"{' '.join(str(text).split()).rstrip('.')}. `{command} --help` shows what can be given."


def model_folders() -> ModelFolders:
    """The user's usual folders."""
    from platformdirs import PlatformDirs

    dirs = PlatformDirs("kvscope", appauthor=False, roaming=False)
    return ModelFolders(
        cache=Path(dirs.user_cache_dir), models=Path(dirs.user_data_dir) / "models", hf_hub=hf_hub_folder()
    )


def model_path(name: str | None) -> Path:
    """The model that was named; without a name the starter, fetched if it is not here yet.

    Raises:
        UnknownModelError: the name is no file, folder or known model.
        FetchError: the starter is missing and could not be fetched.
    """
    folders = model_folders()
    if name is not None:
        return resolve(name, folders)
    with StatusLine() as status:
        return fetch_starter(folders.cache, lambda progress: status.show(fetch_text(progress)), lambda: False)


def fetch_text(progress: FetchProgress) -> str:
    """How far a download has come, for people."""
    if not progress.total_bytes:
        return progress.stage
    return f"{progress.stage}: {progress.done_bytes / 1e6:.0f} of {progress.total_bytes / 1e6:.0f} MB"


class StatusLine:
    """One line on stderr that is written over and wiped at the end; silent where nobody can see it move."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._enabled = sys.stderr.isatty()
        self._due_s = 0.0
        self._width = 0

    def __enter__(self) -> "StatusLine":
        return self

    def __exit__(self, *_error: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        """Show `text`, at most ten times a second."""
        if self._enabled and self._clock() >= self._due_s:
            self._due_s = self._clock() + _PROGRESS_PERIOD_S
            self._write(text)

    def show_load(self, progress: LoadProgress) -> None:
        """Show how far loading has come."""
        self.show(f"{progress.stage} ({progress.fraction:.0%})")

    def _write(self, text: str) -> None:
        if self._enabled:
            sys.stderr.write("\r" + text.ljust(self._width) + ("\r" if not text else ""))
            sys.stderr.flush()
            self._width = len(text)
