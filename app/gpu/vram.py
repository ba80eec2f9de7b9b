"""From a driver's answers to a truthful sample: rows joined and checked. Pure; knows no driver."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.gpu.process_table import ProcessTable
from app.gpu.protect import described, not_visible
from app.gpu.record import MemoryKind, MemorySample, ProcessMemory

_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT, include/linux/threads.h
_SMALLEST_CLAIM_BYTES = 4096
_NOTEWORTHY_BYTES = 512 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The card's own account. `reserved_bytes` is None where an old driver hides it inside `used_bytes`."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the driver's lists: a PID and its bytes, None where the driver does not tell."""

    pid: int
    memory_bytes: int | None


def sample_of(
    device: str, memory: DeviceMemory, claims: Iterable[Claim], table: ProcessTable, *, time_s: float
) -> MemorySample:
    """One look at the card, its processes joined and checked. The residual may be negative and is left so."""
    claims = list(claims)
    joined = {} if is_garbled(claims) else joined_by_pid(claims, memory.total_bytes)
    processes = _rows(joined, table)
    known_bytes = sum(claim for claim in joined.values() if claim is not None)
    unattributed_bytes = memory.used_bytes - known_bytes
    return MemorySample(
        time_s=time_s,
        memory=MemoryKind.VRAM,
        device=device,
        total_bytes=memory.total_bytes,
        used_bytes=memory.used_bytes,
        free_bytes=memory.free_bytes,
        reserved_bytes=memory.reserved_bytes or 0,
        unattributed_bytes=unattributed_bytes,
        processes=tuple(processes),
        note=" ".join(_notes(memory, claims, joined, unattributed_bytes)),
    )


def is_garbled(claims: Sequence[Claim]) -> bool:
    """Whether the rows look like another version's structure, with the PID in the place of the bytes."""
    return any(
        claim.pid > _LARGEST_PID and claim.memory_bytes is not None and claim.memory_bytes < _SMALLEST_CLAIM_BYTES
        for claim in claims
    )


def joined_by_pid(claims: Iterable[Claim], total_bytes: int) -> dict[int, int | None]:
    """One row per process.

    The driver counts all memory of a PID whichever list it appears in, so a process that computes and draws
    carries the same number twice: the larger one is taken, never the sum. More than the card holds is not known.
    """
    joined: dict[int, int | None] = {}
    for claim in claims:
        if claim.pid == 0:
            continue
        believed = claim.memory_bytes if (claim.memory_bytes or 0) <= total_bytes else None
        before = joined.get(claim.pid)
        joined[claim.pid] = before if believed is None else max(believed, before or 0)
    return joined


def _rows(joined: Mapping[int, int | None], table: ProcessTable) -> list[ProcessMemory]:
    rows = [
        not_visible(pid, claim) if pid not in table.entries else described(table.entries[pid], table, claim)
        for pid, claim in joined.items()
    ]
    return sorted(rows, key=lambda row: -1 if row.memory_bytes is None else row.memory_bytes, reverse=True)


def _notes(
    memory: DeviceMemory, claims: Sequence[Claim], joined: Mapping[int, int | None], unattributed_bytes: int
) -> Iterable[str]:
    if memory.reserved_bytes is None:
        yield "This driver counts its own reserve as used."
    if is_garbled(claims):
        yield "The driver's list of processes is garbled (driver and binding do not fit) and was left out."
    elif joined and all(claim is None for claim in joined.values()):
        yield "This display driver does not tell who holds what."
    elif unattributed_bytes < 0:
        yield "Processes share buffers; adding them up gives more than the card holds in use."
    elif unattributed_bytes > _NOTEWORTHY_BYTES:
        yield (
            f"{unattributed_bytes / _GIB:.1f} GiB are held by something this list cannot name: managed memory, "
            "a process of another container or user, or one that died while a child still holds the device."
        )
