"""What can go wrong while looking at memory or ending processes, each with the sentence for the user."""

from collections.abc import Sequence

from app.gpu.record import ProcessMemory
from engine.errors import EngineError, RefusalError


class ProbeError(EngineError):
    """A device does not answer. Leave a gap in the graph, show the text, and ask again later."""


class NoSuchProcessError(RefusalError):
    """A PID that nobody has."""

    def __init__(self, pids: Sequence[int]) -> None:
        which = ", ".join(str(pid) for pid in pids)
        super().__init__(
            f"There is no process with PID {which}, so nothing was ended; `kvscope ps` lists who holds memory."
        )


class ProtectedProcessError(RefusalError):
    """Somebody asked to end what must not be ended."""

    def __init__(self, processes: Sequence[ProcessMemory]) -> None:
        which = "; ".join(f"PID {p.identity.pid} ({p.name}) is {p.protected_because}" for p in processes)
        super().__init__(f"Nothing was ended: {which}.")


class NoConsentError(RefusalError):
    """Nobody is there who could agree, or somebody said no."""

    def __init__(self) -> None:
        super().__init__("Nothing was ended: ending processes needs your consent, so answer y or add --yes.")
