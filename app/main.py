"""The program's entry: decides what was asked before it imports what that needs."""


def main(argv: list[str] | None = None) -> int:
    """Open the window, or run a subcommand. Returns the exit code."""
    raise NotImplementedError(argv)
