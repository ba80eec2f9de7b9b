"""How long the start took, for whoever asks with KVSCOPE_TRACE_START=1: one line on stderr when all is there."""

import os
import sys
import time
from pathlib import Path
from typing import TextIO

VARIABLE = "KVSCOPE_TRACE_START"
EVENTS = ("first paint", "dashboard ready", "model ready")


class StartTrace:
    """Notes when each event came first, in milliseconds since the process was started."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._wanted = os.environ.get(VARIABLE) == "1"
        self._seen_ms: dict[str, float] = {}

    def note(self, event: str) -> None:
        """`event` has happened; only the first time counts."""
        if not self._wanted or event in self._seen_ms:
            return
        self._seen_ms[event] = ms_since_process_start()
        if all(name in self._seen_ms for name in EVENTS):
            line = ", ".join(f"{name} {self._seen_ms[name]:.0f} ms" for name in EVENTS)
            print(f"kvscope start: {line}", file=self._stream, flush=True)


def ms_since_process_start() -> float:
    """Wall time since exec, to a clock tick (10 ms): field 22 of /proc/self/stat counts ticks since boot."""
    # The name in field 2 may hold spaces and parentheses.
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000
