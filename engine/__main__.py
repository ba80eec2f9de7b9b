"""`python -m engine`: the engine's own commands, where the window's dependencies are not installed."""

import sys

from engine.cli.app import app
from engine.cli.terminal import run

if __name__ == "__main__":
    sys.exit(run(app, sys.argv[1:], name="python -m engine"))
