"""A memory plan for people, and a snapshot from a file: the functions behind `kvscope plan --snapshot`.

Knows the plan, no device. The command line prints, and maps a refusal to its exit code.
"""

import json
from pathlib import Path

from engine.errors import UsageError
from engine.memory.plan import LimitedBy, MemoryPlan, MemorySnapshot, PlanRefusedError, plan
from engine.memory.snapshot import MIB
from engine.memory.units import bytes_text

_LABEL_WIDTH = 26
_VALUE_WIDTH = 12

_LIMITED_BY_TEXT = {
    LimitedBy.DEVICE: "the memory that is free on the device",
    LimitedBy.OWN_LIMIT: "your limit on this program's share of the device",
    LimitedBy.KV_SIZE: "the size that was asked for",
    LimitedBy.MAX_USEFUL: "what all slots at full context can use; the rest of the room stays free",
}


def plan_from_snapshot(path: Path) -> MemoryPlan:
    """Plan from a file that holds one snapshot as a JSON object.

    Raises:
        UsageError: the file cannot be read, is no JSON object, or its numbers cannot be true.
        PlanRefusedError: no cache worth starting for fits.
    """
    return plan(read_snapshot(path))


def read_snapshot(path: Path) -> MemorySnapshot:
    """Read a snapshot file.

    Raises:
        UsageError: the file cannot be read, is no JSON object, or its numbers cannot be true.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The snapshot {path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The snapshot {path} is not JSON: {error}. Give a file with one JSON object.") from error
    if not isinstance(data, dict):
        raise UsageError(f"The snapshot {path} holds a JSON {_json_kind(data)}; it must hold one object.")
    return MemorySnapshot.from_json(data)


def format_plan(memory_plan: MemoryPlan) -> str:
    """The plan as a waterfall from the whole device down to the tokens; no newline at the end."""
    snapshot = memory_plan.snapshot
    lines = [
        *_room_lines(snapshot),
        "",
        _row("KV cache", _mib(memory_plan.kv_bytes), _blocks_text(memory_plan)),
        _row(
            "tokens",
            f"{memory_plan.tokens:,}",
            f"{memory_plan.usable_blocks:,} blocks of {snapshot.block_size_tokens} tokens",
        ),
        _row("longest context", f"{memory_plan.max_model_len_tokens:,}", _context_text(memory_plan)),
        "",
        f"Limited by {_LIMITED_BY_TEXT[memory_plan.limited_by]}.",
        _old_formula_text(snapshot.old_formula_blocks, memory_plan.allocated_blocks),
    ]
    return "\n".join(lines)


def format_refusal(error: PlanRefusedError) -> str:
    """The refusal's sentence under its waterfall; no newline at the end."""
    return "\n".join([*_room_lines(error.snapshot), "", str(error)])


def _room_lines(snapshot: MemorySnapshot) -> list[str]:
    """From the device to the room, in MiB."""
    lines = [
        _row("device", _mib(snapshot.total_bytes), "MiB"),
        _row("- held, by every process", _mib(snapshot.total_bytes - snapshot.free_bytes)),
        _row("= free", _mib(snapshot.free_bytes)),
        _row("- activations of a step", _mib(snapshot.activation_bytes)),
        _row("- graphs", _mib(snapshot.graphs_bytes)),
        _row("- safety margin", _mib(snapshot.margin_bytes)),
        _row("= room on the device", _mib(snapshot.device_room_bytes)),
    ]
    if snapshot.own_room_bytes is not None:
        share = f"of {100 * (snapshot.own_limit_fraction or 0.0):.4g} % of the device"
        lines.append(_row("room within your limit", _mib(snapshot.own_room_bytes), share))
    if snapshot.kv_bytes_requested is not None:
        lines.append(_row("size asked for", _mib(snapshot.kv_bytes_requested)))
    return lines


def _row(label: str, value: str, note: str = "") -> str:
    return f"{label:<{_LABEL_WIDTH}}{value:>{_VALUE_WIDTH}}   {note}".rstrip()


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:,.1f}"


def _blocks_text(memory_plan: MemoryPlan) -> str:
    block = bytes_text(memory_plan.snapshot.block_bytes)
    return f"{memory_plan.allocated_blocks:,} blocks of {block}, one of them for padding"


def _context_text(memory_plan: MemoryPlan) -> str:
    wanted_tokens = memory_plan.snapshot.max_model_len_tokens
    return f"shortened from {wanted_tokens:,}" if memory_plan.max_model_len_tokens < wanted_tokens else ""


def _old_formula_text(old_blocks: int, blocks: int) -> str:
    return f"nano-vllm's formula gives {old_blocks:,} blocks here, this plan {blocks:,}."


def _json_kind(data: object) -> str:
    kinds = {list: "list", str: "string", int: "number", float: "number", bool: "truth value"}
    return kinds.get(type(data), "null")
