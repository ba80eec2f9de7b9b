"""Samples, plans and reports as text and as JSON values. Prints nothing."""

from collections.abc import Sequence
from typing import Any

from app.gpu.record import MemoryKind, MemorySample, ProcessMemory, ReleaseReport, StopResult

_SHOWN_ROWS = 30
_COMMAND_COLUMNS = 60


def bytes_text(count: int | None) -> str:
    """A number of bytes for people; "unknown" is not zero."""
    if count is None:
        return "unknown"
    return f"{count / (1 << 30):.2f} GiB" if abs(count) >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


def sample_json(sample: MemorySample, why: str) -> dict[str, Any]:
    """The whole sample."""
    return {
        "memory": sample.memory.value,
        "device": sample.device,
        "why": why,
        "total_bytes": sample.total_bytes,
        "used_bytes": sample.used_bytes,
        "free_bytes": sample.free_bytes,
        "reserved_bytes": sample.reserved_bytes,
        "shared_bytes": sample.shared_bytes,
        "unattributed_bytes": sample.unattributed_bytes,
        "note": sample.note,
        "processes": [process_json(process) for process in sample.processes],
    }


def process_json(process: ProcessMemory) -> dict[str, Any]:
    """One process."""
    return {
        "pid": process.identity.pid,
        "start_ticks": process.identity.start_ticks,
        "name": process.name,
        "user": process.user,
        "kind": process.kind.value,
        "memory_bytes": process.memory_bytes,
        "command": process.command,
        "protected_because": process.protected_because,
    }


def sample_text(sample: MemorySample, why: str) -> str:
    """A table, largest first, with the totals below it."""
    shown, rest = sample.processes[:_SHOWN_ROWS], sample.processes[_SHOWN_ROWS:]
    head = ("PID", "USER", "KIND", "MEMORY", "NAME", "PROTECTED BECAUSE IT IS")
    rows = [head, *(_row(process) for process in shown)]
    lines = [why, "", *(_table(rows, right=(0, 3)) if shown else ["No process holds any of it."])]
    if rest:
        together = bytes_text(sum(process.memory_bytes or 0 for process in rest))
        lines.append(f"and {len(rest)} smaller ones, together {together} (all of them: --json)")
    return "\n".join([*lines, "", _totals_text(sample), *filter(None, [sample.note])])


def _row(process: ProcessMemory) -> tuple[str, ...]:
    return (
        str(process.identity.pid),
        process.user,
        process.kind.value,
        bytes_text(process.memory_bytes),
        process.name,
        process.protected_because,
    )


def _table(rows: Sequence[tuple[str, ...]], *, right: Sequence[int]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths, right)).rstrip() for row in rows]


def _padded(row: tuple[str, ...], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _totals_text(sample: MemorySample) -> str:
    parts = [f"{bytes_text(sample.used_bytes)} of {bytes_text(sample.total_bytes)} used"]
    parts.append(f"{bytes_text(sample.free_bytes)} free")
    if sample.memory is MemoryKind.SYSTEM:
        parts.append(f"{bytes_text(sample.shared_bytes)} shared memory")
    if sample.reserved_bytes:
        parts.append(f"{bytes_text(sample.reserved_bytes)} reserved by the driver")
    parts.append(f"{bytes_text(sample.unattributed_bytes)} held by nobody in this list")
    return f"{sample.device}: {', '.join(parts)}."


def target_line(target: ProcessMemory) -> str:
    """A process that may be ended, with enough of its command line to know it by."""
    command = target.command or target.name
    short = command if len(command) <= _COMMAND_COLUMNS else command[: _COMMAND_COLUMNS - 1] + "…"
    return f"PID {target.identity.pid} ({target.name}), {bytes_text(target.memory_bytes)}: {short}"


def promised_bytes(targets: Sequence[ProcessMemory]) -> int:
    """What they hold together, as far as it is known."""
    return sum(target.memory_bytes or 0 for target in targets)


def report_json(report: ReleaseReport) -> dict[str, Any]:
    """The whole report."""
    return {
        "results": [
            {
                "pid": result.identity.pid,
                "start_ticks": result.identity.start_ticks,
                "name": result.name,
                "outcome": result.outcome.name.lower(),
                "promised_bytes": result.promised_bytes,
                "reason": result.reason,
            }
            for result in report.results
        ],
        "promised_bytes": report.promised_bytes,
        "returned_bytes": report.returned_bytes,
        "free_before_bytes": report.free_before_bytes,
        "free_after_bytes": report.free_after_bytes,
        "elapsed_s": round(report.elapsed_s, 3),
        "note": report.note,
    }


def plan_json(targets: Sequence[ProcessMemory], means: Sequence[str]) -> dict[str, Any]:
    """What would be done."""
    return {
        "dry_run": True,
        "means": list(means),
        "promised_bytes": promised_bytes(targets),
        "processes": [process_json(target) for target in targets],
    }


def plan_text(targets: Sequence[ProcessMemory], means: Sequence[str]) -> str:
    """What would be done."""
    return "\n".join(
        [
            f"Would send {', then (to those that stay) '.join(means)} to:",
            *(f"  {target_line(target)}" for target in targets),
            f"Promised: {bytes_text(promised_bytes(targets))}. Nothing was ended (--dry-run).",
        ]
    )


def report_text(report: ReleaseReport) -> str:
    """How it went, one line per process and the bytes."""
    lines = [_result_line(result) for result in report.results]
    lines.append(f"Promised {bytes_text(report.promised_bytes)}, returned {bytes_text(report.returned_bytes)}.")
    return "\n".join([*lines, *filter(None, [report.note])])


def _result_line(result: StopResult) -> str:
    why = f" ({result.reason})" if result.reason else ""
    return f"PID {result.identity.pid} ({result.name}): {result.outcome.value}{why}"
