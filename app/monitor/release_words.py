"""The sentences of "Free memory…", built from facts."""

from collections.abc import Sequence

from app.gpu.record import (
    MemoryKind,
    MemorySample,
    ProcessKind,
    ProcessMemory,
    ReleaseReport,
    StopOutcome,
    StopResult,
)
from app.widgets import format_bytes

GIB = 2**30
_MOST_NAMED = 8
_ENDED = (StopOutcome.EXITED, StopOutcome.KILLED, StopOutcome.ALREADY_GONE)


def processes_text(count: int) -> str:
    """Words like "2 processes"."""
    return f"{count} process" if count == 1 else f"{count} processes"


def those_text(count: int) -> str:
    """Words like "the 3 that hold"."""
    return "the one that holds" if count == 1 else f"the {count} that hold"


def intro_text(sample: MemorySample) -> str:
    """What the list is."""
    where = f"on {sample.device}" if sample.memory is MemoryKind.VRAM else "in this computer's memory"
    return (
        f"These programs hold memory {where}. Tick the ones that may go. "
        "Nothing is ticked for you, and nothing happens before you have confirmed it."
    )


def sum_text(sample: MemorySample, ticked: Sequence[ProcessMemory]) -> str:
    """What the ticked processes hold and what ending them would give.

    Blocks are not promised: a loaded engine keeps the pool that it has.
    """
    free = f"{sample.free_bytes / GIB:.2f}"
    if not ticked:
        return f"Nothing ticked. {free} GiB are free now."
    held = sum(process.memory_bytes or 0 for process in ticked)
    after = (sample.free_bytes + held) / GIB
    text = f"{processes_text(len(ticked))} ticked: {format_bytes(held)}. "
    text += f"Free memory would rise from {free} to {after:.2f} GiB"
    unknown = sum(process.memory_bytes is None for process in ticked)
    return text + (f". Of {unknown} the driver does not tell how much." if unknown else ".")


def names_text(processes: Sequence[ProcessMemory]) -> str:
    """One line for each process."""
    lines = [
        f"{process.name}  (PID {process.identity.pid})  {format_bytes(process.memory_bytes)}"
        for process in processes[:_MOST_NAMED]
    ]
    if len(processes) > _MOST_NAMED:
        lines.append(f"and {len(processes) - _MOST_NAMED} more")
    return "\n".join(lines)


def ask_text(processes: Sequence[ProcessMemory]) -> str:
    """What the first consent means."""
    text = (
        "Each gets SIGTERM, the polite request to exit. It can still save and close; work that it does not save is "
        "lost. KVScope then waits and measures how much memory comes back. Nothing is forced."
    )
    windows = [process.name for process in processes if process.kind is ProcessKind.APPLICATION]
    if windows:
        text += f"\n\nIf {' or '.join(windows[:3])} may hold unsaved work, go back and close it yourself."
    return text


FORCE_TEXT = (
    "SIGKILL ends a process at once. It cannot save anything: unsaved work is lost, files that it is writing may stay "
    "half written, and programs that it has started may stay behind. If it only needs longer, go back and wait."
)


def waiting_text(report: ReleaseReport) -> str:
    """How the wait stands."""
    running = sum(result.outcome is StopOutcome.WAITING for result in report.results)
    if running:
        left = max(0.0, report.deadline_s - report.elapsed_s)
        return f"Waiting for {processes_text(running)} to exit, {left:.0f} s left"
    return "All have exited. Looking whether their memory comes back"


def came_back_text(report: ReleaseReport) -> str:
    """Words like "5.72 of 5.80 GiB back".

    A little more may come back than they were known to hold (page tables, buffers of the kernel): all of it is enough.
    """
    unit = GIB if report.promised_bytes >= GIB else 2**20
    decimals, name = (2, "GiB") if unit == GIB else (0, "MiB")
    returned, promised = (value / unit for value in (_of_promised(report), report.promised_bytes))
    return f"{returned:,.{decimals}f} of {promised:,.{decimals}f} {name} back"


def _of_promised(report: ReleaseReport) -> int:
    return min(report.returned_bytes, report.promised_bytes)


def outcome_text(report: ReleaseReport) -> str:
    """The end of a release in one line, as the dialog shows it and as the graph is marked."""
    ended = [result for result in report.results if result.outcome in _ENDED]
    running = [result for result in report.results if result.outcome is StopOutcome.STILL_RUNNING]
    if all(result.outcome is StopOutcome.ALREADY_GONE for result in report.results):
        return f"{_who(report.results)} was already gone" if len(ended) == 1 else "All were already gone"
    if ended:
        text = f"{_who(ended)} stopped, {came_back_text(report)}"
        return text + (f"; {_who(running)} did not exit" if running else "")
    if running:
        return f"{_who(running)} did not exit, nothing came back"
    return f"{_who(report.results)}: refused"


def state_text(result: StopResult) -> str:
    """One process's state with its reason."""
    return f"{result.outcome.value}: {result.reason}" if result.reason else result.outcome.value


def still_running(report: ReleaseReport) -> tuple[StopResult, ...]:
    """Those for whom a second consent can be asked."""
    return tuple(result for result in report.results if result.outcome is StopOutcome.STILL_RUNNING)


def _who(results: Sequence[StopResult]) -> str:
    return results[0].name if len(results) == 1 else processes_text(len(results))
