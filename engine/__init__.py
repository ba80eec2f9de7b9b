"""A paged-attention engine that serves many requests in one batch. It knows neither Qt nor the window nor NVML.

Names are resolved on first use, so `import engine` costs nothing and imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.errors import EngineError
    from engine.llm import LLM
    from engine.requests import Message, Request, SamplingParams

__all__ = ["LLM", "Engine", "EngineConfig", "EngineError", "Message", "Request", "SamplingParams"]

_HOMES = {
    "LLM": "engine.llm",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EngineError": "engine.errors",
    "Message": "engine.requests",
    "Request": "engine.requests",
    "SamplingParams": "engine.requests",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
