"""The subcommands. Only parses and maps errors to exit codes; each command imports what it needs when it runs.

Exit codes: 0 success, 1 failure, 2 usage and input, 3 refusal.
"""

import sys
from typing import Annotated

import typer

from app.gpu.cli import FreeRequest, free, ps
from app.gpu.journal import ReleaseJournal
from app.paths import user_paths
from engine.cli.app import app as engine_app
from engine.cli.terminal import run as run_command

app = typer.Typer(
    name="kvscope",
    help="A window on a paged-attention LLM engine, and its commands without a window.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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


app.add_typer(engine_app)


def run(argv: list[str]) -> int:
    """Run one command and return its exit code; an error becomes one sentence on stderr."""
    return run_command(app, argv)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
