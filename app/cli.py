"""The subcommands. Only parses and maps errors to exit codes; each command imports what it needs when it runs.

Exit codes: 0 success, 1 failure, 2 usage and input, 3 refusal.
"""

import sys
from typing import Annotated

import typer

from app.gpu.cli import FreeRequest, free, ps
from app.gpu.journal import ReleaseJournal
from app.paths import user_paths
from engine.errors import EngineError, RefusalError, UsageError

app = typer.Typer(
    name="kvscope",
    help="A window on a paged-attention LLM engine, and its commands without a window.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Typer carried click's exceptions under several names over its versions: this one has always been an attribute.
_PARSE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _commands() -> None:
    """Without this, a single command would take the place of all."""


@app.command("ps")
def _ps(as_json: AsJson = False) -> int:
    """List who holds memory, largest first: the GPU's where there is an NVIDIA card, else the system's."""
    return ps(as_json=as_json)


@app.command("free")
def _free(
    pid: Annotated[
        list[int], typer.Option("--pid", min=1, metavar="P", help="A process to end; may be given several times.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Consent to SIGTERM without being asked.")] = False,
    kill: Annotated[
        bool, typer.Option("--kill", help="Consent to SIGKILL for those that are still there after the wait.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """End processes safely and measure the memory that comes back."""
    request = FreeRequest(pids=tuple(pid), dry_run=dry_run, yes=yes, kill=kill, as_json=as_json)
    return free(request, journal=ReleaseJournal.in_folder(user_paths().data))


def run(argv: list[str]) -> int:
    """Run one command and return its exit code; an error becomes one sentence on stderr."""
    try:
        return int(app(argv, prog_name="kvscope", standalone_mode=False) or 0)
    except _PARSE_ERROR as error:
        return _fail(_sentence(error), 2)
    except UsageError as error:
        return _fail(str(error), 2)
    except RefusalError as error:
        return _fail(str(error), 3)
    except EngineError as error:
        return _fail(str(error), 1)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("Interrupted.", 130)


def _sentence(error: Exception) -> str:
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(str(text).split()).rstrip(".") + "."


def _fail(sentence: str, code: int) -> int:
    print(sentence, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
