"""A display to draw on: the one that is there, or an Xvfb of our own that ends with us."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

SCREEN = "1600x1000x24"


@contextmanager
def some_display() -> Iterator[str]:
    """The name of a display for DISPLAY. Raises OSError where Xvfb is needed and missing."""
    if name := os.environ.get("DISPLAY"):
        yield name
        return
    read_fd, write_fd = os.pipe()
    command = ["Xvfb", "-displayfd", str(write_fd), "-screen", "0", SCREEN, "-nolisten", "tcp"]
    with subprocess.Popen(command, pass_fds=[write_fd], stderr=subprocess.DEVNULL) as server:
        os.close(write_fd)
        try:
            with os.fdopen(read_fd) as told:
                yield f":{int(told.readline())}"
        finally:
            server.terminate()
