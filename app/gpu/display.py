"""Who serves the display that this program's window is on, told from its listening socket and from no name.

Formats: proc_net_unix in proc_net(5), X(7) for DISPLAY, wl_display_connect in Wayland's manual for WAYLAND_DISPLAY.
"""

import os
import re
from collections.abc import Iterator, Mapping

_LOCAL_DISPLAY = re.compile(r"(?:unix)?:(\d+)(?:\.\d+)?")
_LISTENS = 0x00010000  # __SO_ACCEPTCON, include/linux/net.h


def display_sockets(environment: Mapping[str, str], root: str = "/proc") -> frozenset[str]:
    """How /proc/PID/fd shows the sockets on which our display listens: "socket:[1234]". Empty for a display afar."""
    paths = set(_paths(environment))
    try:
        with open(f"{root}/net/unix", encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(None, 7) for line in file]
    except OSError:
        return frozenset()
    return frozenset(
        f"socket:[{row[6]}]" for row in rows[1:] if len(row) == 8 and row[7] in paths and int(row[3], 16) & _LISTENS
    )


def holds_any(folder: str, sockets: frozenset[str]) -> bool:
    """Whether the process with this folder of /proc has one of the sockets open; no for one that may not be read."""
    if not sockets:
        return False
    try:
        return any(_link(f"{folder}/fd/{number}") in sockets for number in os.listdir(f"{folder}/fd"))
    except OSError:
        return False


def _paths(environment: Mapping[str, str]) -> Iterator[str]:
    x11 = _LOCAL_DISPLAY.fullmatch(environment.get("DISPLAY", ""))
    if x11 is not None:
        yield f"/tmp/.X11-unix/X{x11[1]}"
        yield f"@/tmp/.X11-unix/X{x11[1]}"
    if wayland := environment.get("WAYLAND_DISPLAY"):
        yield os.path.join(environment.get("XDG_RUNTIME_DIR", ""), wayland)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed meanwhile
