"""The families of models that one decoder computes, and what each takes for granted. Plain facts, no files.

What a config.json leaves out is what transformers' configuration class of that family says (5.24,
`models/*/configuration_*.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class WindowRule(Enum):
    """Which layers of a family see only a sliding window, where `layer_types` does not name them."""

    NEVER = "a window in the file is ignored"
    EVERY_LAYER = "all layers, when the file gives a window"
    UPPER_LAYERS = "those from `max_window_layers` on, when `use_sliding_window` is set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One `model_type`.

    Attributes:
        name: the `model_type`, also GGUF's architecture (there, Mistral goes as Llama).
        model_class: the class in `architectures`.
        num_kv_heads: when nothing is said; None is as many as there are heads.
        head_dim: when nothing is said; None is hidden_size / num_attention_heads.
        max_position_embeddings: when nothing is said.
        eos_token_id: when no file says one.
        qkv_bias: whether q, k and v have a bias; None reads `attention_bias`.
        output_bias: whether the output projection has one; None reads `attention_bias`.
        reads_mlp_bias: whether `mlp_bias` is a setting of this family.
        qk_norm: q and k are normalised head by head.
        windows: who sees a window.
    """

    name: str
    model_class: str
    num_kv_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int
    eos_token_id: int | None = None
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    reads_mlp_bias: bool = False
    qk_norm: bool = False
    windows: WindowRule


_FAMILIES = (
    Family(
        name="llama", model_class="LlamaForCausalLM", max_position_embeddings=2048, eos_token_id=2,
        reads_mlp_bias=True, windows=WindowRule.NEVER,
    ),
    Family(
        name="mistral", model_class="MistralForCausalLM", num_kv_heads=8, max_position_embeddings=131_072,
        eos_token_id=2, qkv_bias=False, output_bias=False, windows=WindowRule.EVERY_LAYER,
    ),
    Family(
        name="qwen2", model_class="Qwen2ForCausalLM", num_kv_heads=32, max_position_embeddings=32_768,
        qkv_bias=True, output_bias=False, windows=WindowRule.UPPER_LAYERS,
    ),
    Family(
        name="qwen3", model_class="Qwen3ForCausalLM", num_kv_heads=32, head_dim=128, max_position_embeddings=32_768,
        qk_norm=True, windows=WindowRule.UPPER_LAYERS,
    ),
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {family.name: family for family in _FAMILIES}

# What a GGUF file calls them. Its converter writes Mistral as Llama, for the graph is the same.
GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")

SUPPORTED_SENTENCE = "only the Llama family (Llama, SmolLM2, Mistral, Qwen2, Qwen3) can be run"
