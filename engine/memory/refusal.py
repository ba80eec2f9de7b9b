"""Why no plan was made, in one sentence with its numbers. Decides nothing: `engine.memory.plan` does."""

from enum import Enum

from engine.errors import RefusalError
from engine.memory.advice import Advice
from engine.memory.snapshot import MIB, MemorySnapshot
from engine.memory.units import bytes_text


class LimitedBy(Enum):
    """The term that decides the size of the cache."""

    DEVICE = "device"
    OWN_LIMIT = "own_limit"
    KV_SIZE = "kv_size"
    MAX_USEFUL = "max_useful"


class PlanRefusedError(RefusalError):
    """No cache worth starting for fits, or not the one that was asked for.

    Attributes:
        snapshot: what was planned from.
        limited_by: the term that binds.
        shortfall_bytes: what that term lacks, exactly.
        advice: changes each of which alone makes the plan succeed; empty where more than one is needed.
    """

    def __init__(
        self, snapshot: MemorySnapshot, *, limited_by: LimitedBy, shortfall_bytes: int, advice: tuple[Advice, ...]
    ) -> None:
        super().__init__(_refusal_sentence(snapshot, limited_by, shortfall_bytes, advice))
        self.snapshot = snapshot
        self.limited_by = limited_by
        self.shortfall_bytes = shortfall_bytes
        self.advice = advice

    def to_json(self) -> dict[str, object]:
        """The object that the command line prints."""
        return {
            "error": str(self),
            "limited_by": self.limited_by.value,
            "shortfall_bytes": self.shortfall_bytes,
            "advice": [advice.to_json() for advice in self.advice],
            "old_formula_blocks": self.snapshot.old_formula_blocks,
        }


def _refusal_sentence(
    snapshot: MemorySnapshot, limited_by: LimitedBy, shortfall_bytes: int, advice: tuple[Advice, ...]
) -> str:
    help_text = ", or ".join(str(each) for each in advice)
    if not help_text:
        help_text = "no single setting makes it fit; choose a smaller model, or change several settings at once"
    return (
        f"{_wanted_text(snapshot, limited_by)}, but {_room_text(snapshot, limited_by)}: "
        f"{bytes_text(shortfall_bytes)} are missing; {help_text}."
    )


def _wanted_text(snapshot: MemorySnapshot, limited_by: LimitedBy) -> str:
    requested_bytes = snapshot.kv_bytes_requested
    if limited_by is not LimitedBy.KV_SIZE and requested_bytes is not None and requested_bytes >= snapshot.min_kv_bytes:
        return f"A KV cache of {bytes_text(requested_bytes)} was asked for"
    context = f"the shortest useful context of {snapshot.min_context_tokens} tokens"
    return f"The KV cache needs {bytes_text(snapshot.min_kv_bytes)} for {context}"


def _room_text(snapshot: MemorySnapshot, limited_by: LimitedBy) -> str:
    """The binding room, term by term."""
    if limited_by is LimitedBy.KV_SIZE:
        return f"you asked for {bytes_text(snapshot.kv_bytes_requested or 0)}"
    step = f"{bytes_text(snapshot.activation_bytes)} for a step"
    if snapshot.graphs_bytes:
        step += f" and {bytes_text(snapshot.graphs_bytes)} for graphs"
    if limited_by is LimitedBy.OWN_LIMIT:
        fraction, own_bytes = snapshot.own_limit_fraction or 0.0, snapshot.own_bytes or 0
        return (
            f"your limit of {100 * fraction:.4g} % of {bytes_text(snapshot.total_bytes)} leaves "
            f"{_left_text(snapshot.own_room_bytes or 0)} beside {bytes_text(own_bytes)} that this program holds "
            f"and {step}"
        )
    return (
        f"the device leaves {_left_text(snapshot.device_room_bytes)} of {bytes_text(snapshot.free_bytes)} free beside "
        f"{step} and a safety margin of {bytes_text(snapshot.margin_bytes)}"
    )


def _left_text(room_bytes: int) -> str:
    """Rounded down, as the shortfall is rounded up."""
    return bytes_text(max(room_bytes, 0) // MIB * MIB) if room_bytes >= MIB else "nothing"
