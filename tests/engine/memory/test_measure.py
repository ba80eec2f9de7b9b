"""What the machine says about memory: the real files, and files that a control group might show."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.memory import measure

GIB = 2**30
Groups = Callable[..., None]


def test_two_threads_of_a_core_are_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 7: "7"}
    monkeypatch.setattr(measure.os, "sched_getaffinity", lambda _pid: {0, 4, 5, 7})
    monkeypatch.setattr(measure, "_core_of", siblings.__getitem__)
    assert measure.physical_cores() == 3


def test_cores_of_this_machine() -> None:
    assert 1 <= measure.physical_cores() <= len(os.sched_getaffinity(0))
    assert measure._core_of(10**6) == str(10**6), "a CPU that the kernel does not describe"


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, dict[str, str]], None]:
    """A machine of eight cores, /proc/self/cgroup as given, and files below /sys/fs/cgroup."""
    monkeypatch.setattr(measure.os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(measure, "_core_of", str)
    monkeypatch.setattr(measure, "_OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(measure, "_GROUP_ROOT", tmp_path / "sys")

    def write(own: str, files: dict[str, str]) -> None:
        (tmp_path / "cgroup").write_text(own)
        for name, text in files.items():
            path = tmp_path / "sys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "350000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 8),
        ("0::/\n", {}, 8),
        ("0::/user/app\n", {"user/app/cpu.max": "max 100000\n", "user/cpu.max": "400000 100000\n"}, 4),
        ("0::/user/app\n", {"user/app/cpu.max": "300000 100000\n", "user/cpu.max": "400000 100000\n"}, 3),
        ("0::/user/app\n", {"user/other/cpu.max": "100000 100000\n"}, 8),
        ("0::/not/mounted/here\n", {"cpu.max": "500000 100000\n"}, 5),
        ("3:cpu,cpuacct:/box\n", {"cpu,cpuacct/box/cpu.cfs_quota_us": "250000\n",
                                  "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n"}, 2),
        ("3:cpu:/box\n", {"cpu/box/cpu.cfs_quota_us": "-1\n", "cpu/box/cpu.cfs_period_us": "100000\n"}, 8),
        ("3:cpu:/box\n", {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "50000\n"}, 2),
        ("4:memory:/box\n", {"memory/box/cpu.max": "100000 100000\n"}, 8),
    ],
)  # fmt: skip
def test_a_quota_of_processor_time_is_as_good_as_fewer_cores(
    group: Callable[[str, dict[str, str]], None], own: str, files: dict[str, str], cores: int
) -> None:
    group(own, files)
    assert measure.physical_cores() == cores


def test_without_control_groups_the_affinity_decides(group: Callable[[str, dict[str, str]], None]) -> None:
    assert measure.physical_cores() == 8


def test_affinity_and_quota_both_count(
    group: Callable[[str, dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    group("0::/\n", {"cpu.max": "400000 100000\n"})
    monkeypatch.setattr(measure.os, "sched_getaffinity", lambda _pid: {0, 5})
    assert measure.physical_cores() == 2


def test_the_total_is_the_machines() -> None:
    assert measure.system_total_bytes() == psutil.virtual_memory().total


def test_the_kernels_file_caches_count_as_available(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Memory that all share: MemFree alone would count what the kernel gives back at once as used."""
    text = "MemTotal: 16777216 kB\nMemFree: 524288 kB\nMemAvailable: 12582912 kB\nCached: 12058624 kB\n"
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(text)
    monkeypatch.setattr(measure, "Path", lambda path: meminfo if path == "/proc/meminfo" else Path(path))
    monkeypatch.setattr(measure, "_CGROUP_LIMITS", ())
    assert measure.system_total_bytes() == 16 * GIB
    assert measure.cpu_available_bytes() == 12 * GIB
    assert measure.cpu_margin_bytes(measure.cpu_available_bytes()) == 9 * GIB, "and never is all of it taken"


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Groups:
    """Control group files of (limit, usage), on a machine with 8 GiB available."""
    monkeypatch.setattr(measure, "_meminfo", lambda: {"MemTotal": 16 * GIB, "MemAvailable": 8 * GIB})

    def write(*pairs: tuple[str, str]) -> None:
        files = []
        for index, texts in enumerate(pairs):
            paths = tuple(tmp_path / f"{name}-{index}" for name in ("limit", "usage"))
            for path, text in zip(paths, texts, strict=True):
                path.write_text(text)
            files.append(paths)
        monkeypatch.setattr(measure, "_CGROUP_LIMITS", tuple(files))

    return write


def test_three_quarters_of_what_is_free_stay_free() -> None:
    assert measure.cpu_margin_bytes(8 * GIB) == 6 * GIB
    assert measure.cpu_margin_bytes(0) == 0


def test_a_control_group_can_be_the_smaller_machine(groups: Groups) -> None:
    groups((f"{6 * GIB}\n", f"{2 * GIB}\n"))
    assert measure.cpu_available_bytes() == 4 * GIB


@pytest.mark.parametrize(
    "pair", [("max\n", "123\n"), (f"{2**63 - 4096}\n", "0\n"), ("", ""), (f"{16 * GIB}\n", f"{GIB}\n")]
)
def test_a_control_group_without_a_limit_changes_nothing(groups: Groups, pair: tuple[str, str]) -> None:
    groups(pair)
    assert measure.cpu_available_bytes() == 8 * GIB


def test_a_full_control_group_leaves_nothing(groups: Groups) -> None:
    groups((f"{GIB}\n", f"{2 * GIB}\n"))
    assert measure.cpu_available_bytes() == 0


def test_missing_files_change_nothing(groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    groups()
    monkeypatch.setattr(measure, "_CGROUP_LIMITS", ((tmp_path / "none", tmp_path / "nothing"),))
    assert measure.cpu_available_bytes() == 8 * GIB


@pytest.mark.parametrize(
    ("total_gib", "margin_gib", "floor_gib"),
    [(16, 10, 1), (64, 30, 4), (256, 1, 0.25)],
    ids=["desktop", "workstation", "small-group-on-a-large-machine"],
)
def test_no_further_request_starts_below_a_floor(total_gib: int, margin_gib: int, floor_gib: float) -> None:
    found = measure.admission_floor_bytes(total_bytes=total_gib * GIB, margin_bytes=margin_gib * GIB)
    assert found == floor_gib * GIB
