"""Which layers see a sliding window, from a config.json. Follows transformers 5.24 (Mistral, Qwen2, Qwen3)."""

from engine.errors import ModelError
from engine.weights.config_keys import ConfigKeys
from engine.weights.families import Family, WindowRule

DEFAULT_WINDOW_TOKENS = 4096
DEFAULT_FULL_LAYERS = 28
_FULL = ("full_attention", "attention")
_SLIDING = "sliding_attention"


def windows_from_config(config: ConfigKeys, family: Family, num_layers: int) -> tuple[int | None, ...]:
    """For each layer the tokens that a query sees, itself included; None sees all. Empty when all layers see all.

    Raises:
        ModelError: a kind of layer that cannot be computed, or settings that contradict each other.
    """
    if family.windows is WindowRule.NEVER:
        return ()
    is_used = family.windows is WindowRule.EVERY_LAYER or config.flag("use_sliding_window", default=False)
    window = _window(config) if is_used else None
    kinds = config.config.get("layer_types")
    if kinds is not None:
        windows = [window if kind == _SLIDING else None for kind in _checked(config, kinds, num_layers, window)]
    else:
        full_layers = _full_layers(config) if family.windows is WindowRule.UPPER_LAYERS else 0
        windows = [window if index >= full_layers else None for index in range(num_layers)]
    return tuple(windows) if any(size is not None for size in windows) else ()


def _window(config: ConfigKeys) -> int | None:
    """A window that is null is none; one that is not mentioned is 4,096 tokens."""
    if "sliding_window" in config.config and not config.has("sliding_window"):
        return None
    return config.integer("sliding_window", DEFAULT_WINDOW_TOKENS)


def _full_layers(config: ConfigKeys) -> int:
    """How many layers at the bottom see everything: from 0."""
    value = config.config.get("max_window_layers", DEFAULT_FULL_LAYERS)
    if not isinstance(value, int) or isinstance(value, bool):
        raise config.unusable("max_window_layers")
    return value


def _checked(config: ConfigKeys, kinds: object, num_layers: int, window: int | None) -> list[str]:
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise ModelError(
            f"The config.json of {config.name} cannot be used: layer_types is no list of {num_layers} kinds of layers. "
            "Download the model again, or choose another."
        )
    for kind in kinds:
        if kind != _SLIDING and kind not in _FULL:
            raise ModelError(
                f"{config.name} has layers of the kind {kind!r}; only full and sliding attention can be computed. "
                "Choose another model."
            )
        if kind == _SLIDING and window is None:
            raise ModelError(
                f"The config.json of {config.name} contradicts itself: layer_types asks for sliding attention, "
                "and no window is given or used. Download the model again, or choose another."
            )
    return kinds
