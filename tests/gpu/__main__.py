"""All tests that need a card, where neither the window's libraries nor pytest's plugins are installed."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if __name__ == "__main__":
    settings = ["-c", str(HERE / "pytest.ini"), "--confcutdir", str(HERE), "--rootdir", str(HERE.parents[1])]
    sys.exit(pytest.main([*settings, "-p", "no:cacheprovider", str(HERE), *sys.argv[1:]]))
