"""Tiny random checkpoints, one for each family and each kind of rotary embedding, and their lone references."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from tests.fakes.tiny_checkpoint import HEAD_DIM, LLAMA3, YARN, longrope, tiny_checkpoint
from tests.fakes.tiny_model import VOCAB, chat_folder

CONTEXT = 256


def rope(kind: str, **settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **settings}}


@dataclass(frozen=True)
class Family:
    """What a family's checkpoint has beside the sizes that all share.

    Attributes:
        base: a family of `tests.fakes.tiny_checkpoint`.
        changes: settings of its configuration.
        dtype: what the engine computes in; the reference has weights of that precision, and computes in float32.
        min_prompt_tokens: no prompt is shorter, where the reference computes short texts by other frequencies.
    """

    base: str = "llama"
    changes: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    min_prompt_tokens: int = 1


SLIDING = {"sliding_window": 8, "num_hidden_layers": 3}
WINDOWS_ABOVE = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1, "num_hidden_layers": 3}
FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "llama3-rope": Family(changes={"rope_parameters": LLAMA3}),
    "llama-biases": Family(changes={"attention_bias": True, "mlp_bias": True}),
    # Nine heads on three, tied: SmolLM2's proportions.
    "smollm2": Family(
        changes={"tie_word_embeddings": True, "hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}
    ),
    # Eight query heads to one key head: TinyLlama's proportions.
    "tinyllama": Family(changes={"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 1}),
    "mistral": Family("mistral", SLIDING),
    "mistral-full": Family("mistral"),
    "qwen2": Family("qwen2", {"tie_word_embeddings": True}),
    "qwen2-windows": Family("qwen2", WINDOWS_ABOVE),
    "qwen3": Family("qwen3", {"num_hidden_layers": 3}),
    "linear-rope": Family(changes=rope("linear", factor=2.0)),
    "dynamic-rope": Family(changes=rope("dynamic", factor=2.0)),
    "yarn-rope": Family("qwen2", {"rope_parameters": YARN}),
    # transformers chooses the list by the length of the text, the engine by the context that is planned.
    "longrope-short": Family(
        changes={
            "rope_parameters": longrope(HEAD_DIM, original_max_position_embeddings=CONTEXT),
            "max_position_embeddings": 4 * CONTEXT,
        }
    ),
    "longrope-long": Family(changes={"rope_parameters": longrope(HEAD_DIM)}, min_prompt_tokens=65),
    # What CPUs with matrix units compute in, by kernels of our own.
    "llama-bf16": Family(dtype="bfloat16"),
    "mistral-bf16": Family("mistral", SLIDING, dtype="bfloat16"),
    "qwen3-bf16": Family("qwen3", dtype="bfloat16"),
}


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, and transformers' model of the same weights."""

    family: Family
    folder: Path
    reference: PreTrainedModel


def build(name: str, folder: Path) -> Checkpoint:
    """Random weights from a fixed seed, biases and norms included, in float32, saved into `folder`."""
    family = FAMILIES[name]
    sizes = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 1}
    model = tiny_checkpoint(family.base, **(sizes | family.changes))
    model = model.to(getattr(torch, family.dtype)).float()
    model.set_attn_implementation("eager")  # the plain product of matrices: nothing is shared with the engine's way
    return Checkpoint(family, chat_folder(model, folder / name), model)
