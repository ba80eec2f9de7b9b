"""What an engine loop can be told: frozen values, put into its queue from any thread."""

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.requests import Request


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Build an engine from this configuration; an engine already there is closed first."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Close the engine and give its memory back; open requests end as cancelled."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Compute an answer."""

    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a request at the next step boundary. Unknown ids and repetitions are ignored."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ResizeCache:
    """Go on with a KV cache of this many usable blocks; what is computed so far is computed again."""

    num_blocks: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Whether somebody looks: then steps carry a row per sequence, and block maps are sent."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel everything, close the engine and leave the loop."""


Command = LoadModel | UnloadModel | Submit | Cancel | ResizeCache | Watch | Stop
