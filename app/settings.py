"""What the user has chosen: one JSON file, read at start and written whole. No Qt.

A file that cannot be understood never stops the program: the defaults hold, the user gets a note, and the original is
kept beside it.
"""

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from app.options import DTYPES, THEMES
from engine.config import SchedulingPolicy

MAX_SLOTS = 1024
MAX_TOKENS = 10_000_000
MAX_MIB = 10_000_000
POLICIES = tuple(each.value for each in SchedulingPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every choice with its default.

    Attributes:
        theme: "system", "light" or "dark".
        last_model: path of the model that was loaded last; empty for none.
        fetch_starter: whether the starter model is fetched without being asked for when there is no model.
        dtype, device, threads: handed to the engine; "auto" and None let it decide.
        max_num_seqs: slots: answers that are computed at once.
        max_num_batched_tokens: token budget of one step, not below the slots.
        policy: what a step prefers, by the value of its SchedulingPolicy.
        max_chunk_tokens: most tokens of one prompt in one step; None takes what the budget has left.
        max_model_len: longest prompt with its answer, in tokens; None lets the model decide.
        kv_cache_mib: size of the KV cache; None lets the engine decide.
        temperature, top_p, max_tokens: how answers are sampled, and their most tokens (None for no limit).
        system_prompt: what new conversations begin with.
        window_geometry: Qt's own bytes in Base64; empty for the default place and size.
        pane_sizes_px: widths of conversation list, chat and dashboard; empty for the default.
        list_shown, dashboard_shown: whether the side panes are open.
    """

    theme: str = field(default="system", metadata={"choices": THEMES})
    last_model: str = ""
    fetch_starter: bool = True
    dtype: str = field(default="auto", metadata={"choices": DTYPES})
    device: str = "auto"
    threads: int | None = field(default=None, metadata={"range": (1, 9999)})
    max_num_seqs: int = field(default=16, metadata={"range": (1, MAX_SLOTS)})
    max_num_batched_tokens: int = field(default=256, metadata={"range": (1, MAX_TOKENS)})
    policy: str = field(default=SchedulingPolicy.MIXED.value, metadata={"choices": POLICIES})
    max_chunk_tokens: int | None = field(default=None, metadata={"range": (1, MAX_TOKENS)})
    max_model_len: int | None = field(default=None, metadata={"range": (1, MAX_TOKENS)})
    kv_cache_mib: int | None = field(default=None, metadata={"range": (1, MAX_MIB)})
    temperature: float = field(default=0.7, metadata={"range": (0.0, 2.0)})
    top_p: float = field(default=0.95, metadata={"range": (0.01, 1.0)})
    max_tokens: int | None = field(default=None, metadata={"range": (1, MAX_TOKENS)})
    system_prompt: str = ""
    window_geometry: str = ""
    pane_sizes_px: tuple[int, ...] = ()
    list_shown: bool = True
    dashboard_shown: bool = True


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and a sentence for the user when the file was not as expected."""

    settings: Settings
    note: str = ""


def load_settings(path: Path) -> LoadedSettings:
    """Read the file; what is missing or wrong in it takes its default. Never raises for what the file holds."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return LoadedSettings(Settings())
    except (OSError, UnicodeDecodeError) as error:
        return LoadedSettings(Settings(), f"The settings in {path} could not be read ({error}); the defaults hold.")
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        kept = _keep_original(path, text)
        return LoadedSettings(Settings(), f"The settings in {path} are broken; the defaults hold{kept}.")
    settings, wrong = _understand(values)
    if not wrong:
        return LoadedSettings(settings)
    kept = _keep_original(path, text)
    names = ", ".join(wrong)
    return LoadedSettings(
        settings, f"Some settings in {path} were not understood ({names}); their defaults hold{kept}."
    )


def save_settings(path: Path, settings: Settings) -> None:
    """Replace the file whole, so that a crash leaves the old or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(settings), indent=2) + "\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _understand(values: dict[str, Any]) -> tuple[Settings, list[str]]:
    """The settings in `values`, and the names that were wrong or unknown."""
    types = get_type_hints(Settings)
    taken: dict[str, Any] = {}
    wrong = [name for name in values if name not in types]
    for item in dataclasses.fields(Settings):
        if item.name not in values:
            continue
        value = values[item.name]
        if isinstance(value, list):
            value = tuple(value)
        if _fits(value, types[item.name], item.metadata):
            taken[item.name] = value
        else:
            wrong.append(item.name)
    settings = Settings(**taken)
    if settings.max_num_batched_tokens < settings.max_num_seqs:
        wrong += ["max_num_seqs", "max_num_batched_tokens"]
        default = Settings()
        settings = dataclasses.replace(
            settings, max_num_seqs=default.max_num_seqs, max_num_batched_tokens=default.max_num_batched_tokens
        )
    return settings, wrong


def _fits(value: object, kind: object, metadata: Mapping[str, Any]) -> bool:
    if "choices" in metadata:
        return value in metadata["choices"]
    if kind == tuple[int, ...]:
        return isinstance(value, tuple) and all(type(item) is int and item >= 0 for item in value)
    if value is None:
        return kind == int | None
    if "range" in metadata:
        low, high = metadata["range"]
        return type(value) in ((int, float) if kind is float else (int,)) and low <= value <= high
    return type(value) is kind


def _keep_original(path: Path, text: str) -> str:
    """Half a sentence that says where the original is."""
    backup = path.with_name(path.name + ".bak")
    try:
        backup.write_text(text, encoding="utf-8")
    except OSError:
        return ""
    return f", and the original is kept as {backup.name}"
