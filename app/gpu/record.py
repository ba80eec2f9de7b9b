"""What was seen of the memory: frozen values that travel from the sampler thread to the window. No Qt."""

from dataclasses import dataclass
from enum import Enum


class MemoryKind(Enum):
    """Which memory a sample speaks of."""

    VRAM = "vram"
    SYSTEM = "system"


class ProcessKind(Enum):
    """What a process is, as far as its name, owner and place in the tree tell."""

    OWN = "KVScope"
    MODEL_SERVER = "model server"
    DESKTOP = "desktop"
    NOTEBOOK = "notebook"
    SERVICE = "service"
    APPLICATION = "application"
    OTHER_USER = "other user"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process for life: a PID alone may be reused, a PID with its start time is not.

    `start_ticks` is field 22 of /proc/PID/stat: clock ticks after boot.
    """

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """What one process holds.

    Attributes:
        memory_bytes: None when the driver does not tell (never drawn as 0).
        protected_because: the reason why it is not offered for ending; empty when it may be offered.
    """

    identity: ProcessIdentity
    name: str
    user: str
    command: str
    memory_bytes: int | None
    kind: ProcessKind
    protected_because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """One look at one device's memory.

    Attributes:
        time_s: time.monotonic() of the look.
        device: for people: the card's name, or "System memory".
        used_bytes: all that is taken, by whomever, without the driver's reserve.
        reserved_bytes: the driver's reserve (VRAM only).
        shared_bytes: shared memory, counted once (system memory only).
        unattributed_bytes: used, but by nobody in the list; negative when processes share buffers.
        processes: every holder, largest first.
        note: a sentence when something could not be read; empty otherwise.
    """

    time_s: float
    memory: MemoryKind
    device: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int = 0
    shared_bytes: int = 0
    unattributed_bytes: int = 0
    processes: tuple[ProcessMemory, ...] = ()
    note: str = ""


class StopOutcome(Enum):
    """How asking one process to end has gone so far."""

    WAITING = "waiting for it to exit"
    EXITED = "exited"
    KILLED = "ended by SIGKILL"
    ALREADY_GONE = "was already gone"
    REFUSED = "refused"
    STILL_RUNNING = "did not exit"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopResult:
    """One process of a release. `reason` says why when it was refused or did not exit."""

    identity: ProcessIdentity
    name: str
    outcome: StopOutcome
    promised_bytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport:
    """State of a release: sent repeatedly while it runs (`finished` False), once at its end.

    Attributes:
        elapsed_s: since the signal was sent.
        deadline_s: how long the polite wait may take.
        free_before_bytes: free memory of the device before the signal.
        free_after_bytes: the same, read now.
        returned_bytes: free_after - free_before, plus what other processes took meanwhile; never negative.
        promised_bytes: what the ended processes held.
        note: a sentence when less came back than was promised, or something could not be written down; else empty.
    """

    results: tuple[StopResult, ...]
    elapsed_s: float
    deadline_s: float
    free_before_bytes: int
    free_after_bytes: int
    returned_bytes: int
    promised_bytes: int
    finished: bool
    note: str = ""
