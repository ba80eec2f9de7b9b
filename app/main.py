"""The program's entry: decides what was asked before it imports what that needs.

`kvscope` alone opens the window (Qt, later torch); a command runs in the terminal without Qt.
"""

import sys
from collections.abc import Sequence

from app.options import COMMANDS, WindowOptions, parse_window_options
from engine.errors import EngineError


def main(argv: Sequence[str] | None = None) -> int:
    """Open the window, or run a command. Returns the exit code: 2 for wrong input, 1 for failures, 3 for refusals."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in COMMANDS:
            return _run_command(arguments)
        return _open_window(parse_window_options(arguments))
    except EngineError as error:
        sys.stderr.write(f"kvscope: {error}\n")
        return error.exit_code


def _run_command(arguments: list[str]) -> int:
    from importlib import import_module

    return int(import_module("app.cli").run(arguments) or 0)


def _open_window(options: WindowOptions) -> int:
    from app.desktop import run

    return run(options)


if __name__ == "__main__":
    sys.exit(main())
