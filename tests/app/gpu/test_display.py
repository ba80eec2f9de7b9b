"""Whoever serves our own display is found by its socket: real sockets of real processes, and tables by hand."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.gpu.display import display_sockets, holds_any
from app.gpu.processes import ProcessReader
from app.gpu.protect import protection_of
from app.gpu.record import ProcessKind
from tests.fakes.household import Household
from tests.fakes.proc import FakeProc

TABLE = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000001: 00000003 00000000 00000000 0001 03 70 @/tmp/.X11-unix/X7
0000000000000002: 00000002 00000000 00010000 0001 01 71 /tmp/.X11-unix/X7
0000000000000003: 00000002 00000000 00010000 0001 01 72 @/tmp/.X11-unix/X7
0000000000000004: 00000002 00000000 00010000 0001 01 73 /tmp/.X11-unix/X77
0000000000000005: 00000003 00000000 00000000 0001 03 74
0000000000000006: 00000002 00000000 00010000 0001 01 75 /run/user/1000/wayland-0
0000000000000007: 00000002 00000000 00010000 0001 01 76 /run/user/1000/a name
"""
RUNTIME = {"XDG_RUNTIME_DIR": "/run/user/1000"}
SERVER = """
import signal, socket
listening = socket.socket(socket.AF_UNIX)
listening.bind({path!r})
listening.listen()
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("environment", "inodes"),
    [
        ({"DISPLAY": ":7"}, {71, 72}),
        ({"DISPLAY": ":7.0"}, {71, 72}),
        ({"DISPLAY": "unix:77"}, {73}),
        ({"DISPLAY": ":8"}, set()),
        ({"DISPLAY": "localhost:7.0"}, set()),
        ({"DISPLAY": "nonsense"}, set()),
        ({"WAYLAND_DISPLAY": "wayland-0"}, set()),
        ({"WAYLAND_DISPLAY": "wayland-0", **RUNTIME}, {75}),
        ({"WAYLAND_DISPLAY": "/run/user/1000/a name"}, {76}),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":77", **RUNTIME}, {73, 75}),
        ({}, set()),
    ],
)
def test_only_what_listens_for_our_display_counts(
    proc: FakeProc, environment: dict[str, str], inodes: set[int]
) -> None:
    (proc.root / "net").mkdir()
    (proc.root / "net" / "unix").write_text(TABLE)
    assert display_sockets(environment, str(proc.root)) == {f"socket:[{inode}]" for inode in inodes}


def test_a_machine_that_does_not_tell_has_no_display(proc: FakeProc) -> None:
    assert display_sockets({"DISPLAY": ":7"}, str(proc.root)) == frozenset()
    assert not holds_any(str(proc.root / "no such process"), frozenset({"socket:[71]"}))


def test_a_server_of_any_name_is_protected(proc: FakeProc) -> None:
    (proc.root / "net").mkdir()
    (proc.root / "net" / "unix").write_text(TABLE)
    for pid, held in {60: "socket:[71]", 61: "socket:[70]", 62: "socket:[73]"}.items():
        proc.process(pid, comm="thing")
        (proc.root / str(pid) / "fd").mkdir()
        (proc.root / str(pid) / "fd" / "3").symlink_to(held)
    reader = ProcessReader(own_pid=50, own_uid=1000, root=proc.root, environment={"DISPLAY": ":7"})
    for _ in range(3):
        table = reader.read()
        roles = {pid: entry.role for pid, entry in table.entries.items()}
        assert roles == {60: ProcessKind.DESKTOP, 61: ProcessKind.APPLICATION, 62: ProcessKind.APPLICATION}
        assert protection_of(table.entries[60], table) == "needed by the desktop or the system"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the path of a socket has at most 107 bytes."""
    with TemporaryDirectory(prefix="kvscope-") as made:
        yield Path(made)


def test_a_real_compositor_is_told_from_its_clients(household: Household, folder: Path) -> None:
    place = folder / "wayland-7"
    server = household.python(SERVER.format(path=str(place)))
    environment = {"WAYLAND_DISPLAY": place.name, "XDG_RUNTIME_DIR": str(folder)}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(place))
        entries = ProcessReader(environment=environment).read().entries
        assert entries[server.pid].role is ProcessKind.DESKTOP
        assert entries[os.getpid()].role is not ProcessKind.DESKTOP
        assert ProcessReader(environment={}).read().entries[server.pid].role is not ProcessKind.DESKTOP
