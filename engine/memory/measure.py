"""What the machine says about memory, as the snapshot that the plan needs.

On a CPU there is no allocator peak to measure, and memory that was promised too freely ends the window: activations
by formula, and at most a quarter of what is available for the cache, whose pages are touched only when used.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")
_CPU_SHARE = 4  # one part in this many of the available memory may become cache
_CGROUP_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def physical_cores() -> int:
    """Physical cores that this process may run on, by its affinity and its control groups' quota; at least 1.

    Two threads on one core share its matrix unit, and one that waits for a busy core holds up the whole team; so does
    one that is throttled because the group has used up its quota.
    """
    allowed = os.sched_getaffinity(0)
    cores = len({_core_of(cpu) for cpu in allowed})
    return max(min([cores, *map(int, _cpu_quotas())]), 1)


def _cpu_quotas() -> Iterator[float]:
    """How many CPUs each control group around this process may use together (v2: cpu.max, v1: cfs quota)."""
    for folder in _group_folders():
        for limit in (_read_words(folder / "cpu.max"), _read_cfs(folder)):
            if len(limit) == 2 and all(word.isdecimal() for word in limit) and int(limit[1]):
                yield int(limit[0]) / int(limit[1])


def _read_cfs(folder: Path) -> list[str]:
    """Quota and period of version 1; the quota is -1 where there is none."""
    return _read_words(folder / "cpu.cfs_quota_us") + _read_words(folder / "cpu.cfs_period_us")


def _group_folders() -> Iterator[Path]:
    """The folders of this process's groups and of all groups around them."""
    for line in _read_lines(_OWN_GROUPS):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _GROUP_ROOT / controllers if controllers else _GROUP_ROOT
        inner = root / path.strip("/")
        yield from (each for each in (inner, *inner.parents) if each.is_relative_to(root))


def _read_words(path: Path) -> list[str]:
    return " ".join(_read_lines(path)).split()


def _read_lines(path: Path) -> list[str]:
    """Nothing where there is no such file."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _core_of(cpu: int) -> str:
    """The core's first CPU as the kernel lists its threads; the CPU itself where it does not."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def system_total_bytes() -> int:
    """MemTotal."""
    return _meminfo()["MemTotal"]


def cpu_available_bytes() -> int:
    """What this process may still take of the system's memory, by MemAvailable and the control group's limit."""
    available = _meminfo()["MemAvailable"]
    for limit_file, usage_file in _CGROUP_LIMITS:
        limit, usage = _read_number(limit_file), _read_number(usage_file)
        if limit is not None and usage is not None:
            available = min(available, max(limit - usage, 0))
    return available


def cpu_margin_bytes(free_bytes: int) -> int:
    """What is left to everybody else: only one part in four may become cache."""
    return free_bytes - free_bytes // _CPU_SHARE


def admission_floor_bytes(*, total_bytes: int, margin_bytes: int) -> int:
    """Below this much available memory no further request starts.

    Far below the margin of the plan, which is three quarters of what was free and would be missed as soon as some
    other program grows: a sixteenth of the machine, or a quarter of the margin where a control group gives us less.
    """
    return min(total_bytes // 16, margin_bytes // 4)


def _meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines)
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def _read_number(path: Path) -> int | None:
    """None where the file is missing or says "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
