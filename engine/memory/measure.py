"""What the machine says about memory, as the snapshot that the plan needs.

On a CPU there is no allocator peak to measure, and memory that was promised too freely ends the window: activations
by formula, and at most a quarter of what is available for the cache, whose pages are touched only when used.
"""

import os
from pathlib import Path

_CPU_SHARE = 4  # one part in this many of the available memory may become cache
_CGROUP_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def physical_cores() -> int:
    """Physical cores that this process may run on.

    Two threads on one core share its matrix unit, and one that waits for a busy core holds up the whole team.
    """
    allowed = os.sched_getaffinity(0)
    cores = {_core_of(cpu) for cpu in allowed}
    return len(cores)


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
