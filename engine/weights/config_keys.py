"""Looks keys of a config.json up, and turns what is missing or strange into a sentence."""

import math
from collections.abc import Mapping
from typing import Any

from engine.errors import ModelError


class ConfigKeys:
    """Typed access to one JSON object. A value of null counts as missing, as transformers takes it for its default."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1.

        Raises:
            ModelError: it is missing without a default, or something else.
        """
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.unusable(key)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0.

        Raises:
            ModelError: it is missing without a default, or something else.
        """
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.unusable(key)
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ModelError: something else.
        """
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.unusable(key)
        return value

    def has(self, key: str) -> bool:
        """Whether anything but null is said."""
        return self.config.get(key) is not None

    def unusable(self, key: str) -> ModelError:
        """The sentence for a value that cannot be used."""
        value = self.config.get(key)
        found = "is missing" if value is None else f"is {value!r}"
        return ModelError(
            f"The config.json of {self.name} cannot be used: {key} {found}. "
            "Download the model again, or choose another."
        )

    def _value(self, key: str, default: object) -> object:
        value = self.config.get(key)
        return default if value is None else value
