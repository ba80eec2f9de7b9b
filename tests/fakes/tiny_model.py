"""Whole tiny models on disk, weights and tokenizer, and engines on them."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from engine.config import EngineConfig
from engine.engine import Engine
from engine.gguf_file import read_header
from engine.requests import Request, SamplingParams
from engine.text.gguf_tokenizer import parts_from_header
from tests.fakes.tiny_checkpoint import tiny_checkpoint
from tests.fakes.tiny_llama import save_folder, save_gguf
from tests.fakes.tiny_tokenizer import byte_level_fields, save_fields

VOCAB = 320
TEMPLATE = (
    "{% for message in messages %}<|user|>{{ message.role }}: {{ message.content }}<|user_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant: {% endif %}"
)


def tiny_chat_model(family: str = "llama", **changes: Any) -> Any:
    """A tiny model for the tokenizer of 320 tokens."""
    return tiny_checkpoint(family, **({"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 1} | changes))


def chat_gguf(model: PreTrainedModel, path: Path, *, extra: dict[str, Any] | None = None) -> Path:
    """One file with weights, tokenizer and chat template."""
    fields = byte_level_fields(chat_template=TEMPLATE)
    return save_gguf(model, path, extra=fields | (extra or {}))


def chat_folder(model: PreTrainedModel, folder: Path) -> Path:
    """The same as a folder, for what GGUF has no field for."""
    save_folder(model, folder)
    header = read_header(save_fields(folder / "fields.gguf", byte_level_fields()))
    parts_from_header(header).backend.save(str(folder / "tokenizer.json"))
    (folder / "fields.gguf").unlink()
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def tiny_config(path: Path, **changes: Any) -> EngineConfig:
    """float32 on one CPU thread, 64 blocks of 16 tokens; `changes` win."""
    settings = {"device": "cpu", "dtype": "float32", "threads": 1, "num_kv_blocks": 64, "max_model_len": 256}
    return EngineConfig(model=str(path), **(settings | changes))


def tiny_engine(path: Path, **changes: Any) -> Engine:
    """See tiny_config."""
    return Engine.load(tiny_config(path, **changes))


def greedy(request_id: str, token_ids: list[int], max_tokens: int, **changes: Any) -> Request:
    """A request for exactly this many most likely tokens."""
    sampling = SamplingParams(**({"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True} | changes))
    return Request(request_id=request_id, token_ids=tuple(token_ids), sampling=sampling)
