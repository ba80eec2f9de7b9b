"""A tokenizer from a model folder: tokenizer.json, with what tokenizer_config.json and the template file add."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import ModelError
from engine.model_names import display_name
from engine.text.parts import TokenizerParts


def parts_from_folder(folder: Path) -> TokenizerParts:
    """Read the tokenizer of a folder.

    Raises:
        ModelError: there is no tokenizer.json, or a file cannot be read.
    """
    backend = _backend(folder)
    config = _optional_json(folder / "tokenizer_config.json")
    model_config = _optional_json(folder / "config.json")
    bos_token_id = _token_id(backend, config.get("bos_token"), model_config.get("bos_token_id"))
    return TokenizerParts(
        name=display_name(folder),
        backend=backend,
        bos_token_id=bos_token_id,
        eos_token_id=_token_id(backend, config.get("eos_token"), model_config.get("eos_token_id")),
        adds_bos=bos_token_id is not None and _adds_bos(backend, config, bos_token_id),
        chat_template=_chat_template(folder, config),
    )


def tokenizer_path(folder: Path) -> Path:
    """The file that a folder's tokenizer is read from.

    Raises:
        ModelError: there is none.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(
            f"The folder {folder} has no tokenizer.json, so text cannot be turned into tokens. "
            "Download the model again, or choose it as GGUF."
        )
    return path


def _backend(folder: Path) -> tokenizers.Tokenizer:
    path = tokenizer_path(folder)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelError(f"{path} cannot be read as a tokenizer: {error}. Download the model again.") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _optional_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}. Download the model again.") from error
    return value if isinstance(value, dict) else {}


def _token_id(backend: tokenizers.Tokenizer, token: object, fallback: object) -> int | None:
    """A token that is named by its text, by {"content": text}, or by the number in config.json."""
    text = token.get("content") if isinstance(token, dict) else token
    if isinstance(text, str):
        return backend.token_to_id(text)
    first = fallback[0] if isinstance(fallback, list) and fallback else fallback
    return first if isinstance(first, int) else None


def _adds_bos(backend: tokenizers.Tokenizer, config: Mapping[str, Any], bos_token_id: int) -> bool:
    """What the file says outright, or else what its post-processor does."""
    stated = config.get("add_bos_token")
    if isinstance(stated, bool):
        return stated
    return backend.encode("").ids[:1] == [bos_token_id]


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}. Download the model again.") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
