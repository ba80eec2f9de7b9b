"""The real binding against a stand-in for the driver's library, each machine in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml import build

CARD = (
    "gpu 0 GPU-aaaa NVIDIA_GeForce_RTX_3090 total=25769803776 reserved=322961408 used=10200547328 ret=0 mem_ret=0 v2=0"
)
SECOND = "gpu 1 GPU-bbbb Second_card total=8589934592 reserved=0 used=0 ret=0 mem_ret=0 v2=0"

# Opens a probe in the first scene, then samples once in each scene; says what it saw as one JSON line.
PLAYER = """
import ctypes, json, os, pathlib, sys
from app.gpu.present import sample_json
from app.gpu.probe import open_probe
from app.gpu.errors import ProbeError
from engine.errors import EngineError
scene = pathlib.Path(os.environ["FAKE_NVML"])
scenes = json.loads(sys.argv[1])
play = lambda text: scene.write_text(text.replace("OWN", str(os.getpid())))
play(scenes[0])
said = {"samples": [], "pid": os.getpid()}
try:
    opened = open_probe(device_index=int(sys.argv[2]))
    said["why"] = opened.why
    for text in scenes:
        play(text)
        try:
            said["samples"].append(sample_json(opened.probe.sample(), opened.why))
        except ProbeError as error:
            said["samples"].append(str(error))
    opened.probe.close()
    opened.probe.close()
except EngineError as error:
    said["refused"] = str(error)
library = ctypes.CDLL("libnvidia-ml.so.1")
said["inits"], said["shutdowns"] = library.fakeInits(), library.fakeShutdowns()
said["touched"] = [name for name in ("torch", "PySide6") if name in sys.modules]
said["cuda"] = "libcuda" in pathlib.Path("/proc/self/maps").read_text()
print(json.dumps(said))
"""


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the stand-in for the driver's library")
    folder = tmp_path_factory.mktemp("nvml")
    build(folder)
    return folder


@pytest.fixture
def machine(library_folder: Path, tmp_path: Path) -> "Machine":
    return Machine(library_folder, tmp_path)


class Machine:
    def __init__(self, library_folder: Path, tmp_path: Path) -> None:
        self._environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library_folder),
            "FAKE_NVML": str(tmp_path / "scene.txt"),
        }

    def plays(self, *scenes: str, device_index: int = 0) -> dict[str, Any]:
        command = [sys.executable, "-c", PLAYER, json.dumps(scenes), str(device_index)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said


def scene(*lines: str, card: str = CARD) -> str:
    return "\n".join([card, *lines]) + "\n"


def by_pid(sample: dict[str, Any]) -> dict[int, Any]:
    return {row["pid"]: row for row in sample["processes"]}


def test_card_with_its_holders(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 C 4194000 6227702579", "proc 0 G 4194001 812646400"))
    (sample,) = said["samples"]
    assert "NVIDIA GeForce RTX 3090" in said["why"]
    assert (sample["memory"], sample["device"]) == ("vram", "NVIDIA GeForce RTX 3090")
    assert (sample["total_bytes"], sample["used_bytes"]) == (25769803776, 10200547328)
    assert sample["reserved_bytes"] == 322961408
    assert sample["free_bytes"] == 25769803776 - 10200547328 - 322961408
    assert sample["unattributed_bytes"] == 10200547328 - 6227702579 - 812646400
    assert [row["pid"] for row in sample["processes"]] == [4194000, 4194001]


def test_process_in_both_lists_is_counted_once(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 C 4194000 1258291200", "proc 0 G 4194000 1258291200"))
    (sample,) = said["samples"]
    assert [row["memory_bytes"] for row in sample["processes"]] == [1258291200]
    assert sample["unattributed_bytes"] == 10200547328 - 1258291200


def test_unknown_is_not_zero_and_comes_last(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 G 4194001 NA", "proc 0 C 4194000 100000"))
    assert [row["memory_bytes"] for row in said["samples"][0]["processes"]] == [100000, None]


def test_driver_that_tells_nothing_says_so(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 C 4194000 NA", "proc 0 G 4194001 NA"))
    assert "does not tell" in said["samples"][0]["note"]


def test_own_process_is_known_and_a_foreign_pid_is_not_visible(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 C OWN 5000000", "proc 0 C 4194000 6000000"))
    rows = by_pid(said["samples"][0])
    assert rows[said["pid"]]["kind"] == "KVScope"
    assert "itself" in rows[said["pid"]]["protected_because"]
    assert "not visible" in rows[4194000]["protected_because"]


def test_watching_touches_no_cuda(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 C OWN 5000000"), scene())
    assert said["touched"] == []
    assert not said["cuda"]


def test_residual_may_be_negative(machine: Machine) -> None:
    said = machine.plays(scene("proc 0 C 4194000 9000000000", "proc 0 C 4194001 9000000000"))
    (sample,) = said["samples"]
    assert sample["unattributed_bytes"] == 10200547328 - 18000000000
    assert "share" in sample["note"]


def test_large_residual_is_explained(machine: Machine) -> None:
    (sample,) = machine.plays(scene())["samples"]
    assert sample["processes"] == []
    assert "9.5 GiB" in sample["note"]


@pytest.mark.parametrize("code", [13, 25], ids=["function not found", "version mismatch"])
def test_old_driver_counts_its_reserve_as_used(machine: Machine, code: int) -> None:
    (sample,) = machine.plays(scene(card=CARD.replace("v2=0", f"v2={code}")))["samples"]
    assert sample["used_bytes"] == 10200547328 + 322961408
    assert sample["free_bytes"] == 25769803776 - 10200547328 - 322961408
    assert sample["reserved_bytes"] == 0
    assert "reserve" in sample["note"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "kernel module is not loaded"),
        (18, "driver was updated"),
        (4, "may not see GPU 0"),
        (17, "may not see GPU 0"),
        (12, "No NVIDIA driver library"),
        (77, "answers with an error"),
    ],
)
def test_library_that_will_not_start_has_a_sentence(machine: Machine, code: int, words: str) -> None:
    said = machine.plays(f"init {code}\n")
    assert words in said["why"]
    assert said["why"].endswith("Showing system memory instead.")
    assert said["samples"][0]["memory"] == "system"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "sees no GPU"),
        (scene(card=CARD.replace("mem_ret=0", "mem_ret=3")), "shares memory with the system"),
        (scene(card=CARD.replace("total=25769803776", "total=0")), "shares memory with the system"),
        (scene(card=CARD.replace("ret=0 mem_ret=0", "ret=15 mem_ret=0")), "stopped answering at"),
    ],
    ids=["no card", "memory not supported", "no memory of its own", "lost from the start"],
)
def test_card_without_numbers_leaves_system_memory(machine: Machine, text: str, words: str) -> None:
    said = machine.plays(text)
    assert words in said["why"]
    assert said["samples"][0]["memory"] == "system"
    assert said["inits"] == said["shutdowns"]


def test_index_beyond_the_cards_is_refused(machine: Machine) -> None:
    said = machine.plays(scene(SECOND), device_index=2)
    assert "no GPU 2" in said["refused"]
    assert "has 2" in said["refused"]
    assert said["inits"] == said["shutdowns"]


def test_lost_card_leaves_a_gap_and_may_come_back(machine: Machine) -> None:
    lost = scene(card=CARD.replace("ret=0 mem_ret=0", "ret=15 mem_ret=0"))
    before, gap, after = machine.plays(scene(), lost, scene())["samples"]
    assert before["used_bytes"] == after["used_bytes"] == 10200547328
    assert "GPU 0 stopped answering at" in gap


def test_driver_that_forgot_us_is_started_once_more(machine: Machine) -> None:
    said = machine.plays(scene(), scene("needs_init 2"), scene("needs_init 2"))
    assert [sample["used_bytes"] for sample in said["samples"]] == [10200547328] * 3
    assert (said["inits"], said["shutdowns"]) == (2, 2)


def test_starting_more_often_than_once_is_not_tried_in_one_look(machine: Machine) -> None:
    said = machine.plays(scene(), scene("needs_init 9"), scene())
    assert isinstance(said["samples"][1], str)
    assert said["inits"] == 2
    assert said["samples"][2]["used_bytes"] == 10200547328


def test_card_is_found_by_its_uuid_after_the_order_changed(machine: Machine) -> None:
    swapped = "\n".join(["needs_init 2", SECOND.replace("gpu 1", "gpu 0"), CARD.replace("gpu 0", "gpu 1")]) + "\n"
    said = machine.plays(scene(SECOND), swapped)
    assert [sample["total_bytes"] for sample in said["samples"]] == [25769803776] * 2


def test_more_processes_than_fit_the_first_answer(machine: Machine) -> None:
    rows = [f"proc 0 C {4190000 + i} {1000000 + i}" for i in range(150)]
    (sample,) = machine.plays(scene(*rows))["samples"]
    assert [row["memory_bytes"] for row in sample["processes"]] == [1000149 - i for i in range(150)]


def test_machine_without_the_library() -> None:
    code = "from app.gpu.probe import open_probe; print(open_probe().why)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if "Showing the memory of" in done.stdout:
        pytest.skip("this machine has an NVIDIA card")
    assert "Showing system memory instead." in done.stdout
