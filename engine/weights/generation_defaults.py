"""How a model's makers want it sampled, from generation_config.json or from a GGUF header. No tensors, no requests."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.gguf_file import skim_header
from engine.weights.config_json import read_json

_GGUF_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
# What can be taken over as it stands; anything else counts as not said.
_RANGES: Mapping[str, Callable[[float], bool]] = {
    "temperature": lambda value: 0 <= value <= 2,
    "top_k": lambda value: value >= 0 and value == int(value),
    "top_p": lambda value: 0 < value <= 1,
    "min_p": lambda value: 0 <= value <= 1,
    "repetition_penalty": lambda value: 0.1 <= value <= 10,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """Sampling parameters by the names of SamplingParams; None where the model says nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def stated(self) -> dict[str, float | int]:
        """What the model says: keyword arguments for SamplingParams."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def read_generation_defaults(path: Path) -> GenerationDefaults:
    """Read what a model folder or a GGUF file says; nothing when it says nothing.

    Raises:
        ModelError: a file that is there cannot be read.
    """
    if not path.is_dir():
        return defaults_from_metadata(skim_header(path).metadata)
    file = path / "generation_config.json"
    return defaults_from_config(read_json(file)) if file.is_file() else GenerationDefaults()


def defaults_from_config(config: Mapping[str, Any]) -> GenerationDefaults:
    """From a parsed generation_config.json. `do_sample` false is a temperature of 0, whatever stands beside it."""
    if config.get("do_sample") is False:
        return GenerationDefaults(temperature=0.0, repetition_penalty=_number(config, "repetition_penalty"))
    return _defaults(config, {name: name for name in _RANGES})


def defaults_from_metadata(metadata: Mapping[str, Any]) -> GenerationDefaults:
    """From the fields of a GGUF header."""
    return _defaults(metadata, _GGUF_KEYS)


def _defaults(values: Mapping[str, Any], keys: Mapping[str, str]) -> GenerationDefaults:
    found = {name: _number({name: values.get(key)}, name) for name, key in keys.items()}
    top_k = found.pop("top_k")
    return GenerationDefaults(**found, top_k=None if top_k is None else int(top_k))


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < float("inf"):
        return None
    return value if _RANGES[name](value) else None
