"""Triton decides when it is imported whether it compiles or interprets: hence a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_in_the_interpreter() -> None:
    # numpy warns of the NaN that the tests put in; a card does not.
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        [sys.executable, *arguments, str(Path(__file__).with_name("interpreted.py"))],
        env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
