"""One door to the weights of a model, whatever file they lie in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

from engine.architecture import ModelArchitecture
from engine.errors import ModelError


class WeightSource(Protocol):
    """Tensors by their Hugging Face names ("model.layers.0.self_attn.q_proj.weight").

    With tied heads `architecture.tie_word_embeddings` is set and there is no "lm_head.weight".
    Not for several threads at once.
    """

    @property
    def architecture(self) -> ModelArchitecture:
        """The model's shape."""

    @property
    def quantization(self) -> str:
        """How the weights are stored, for people: "Q4_1", "bfloat16"."""

    def tensor_names(self) -> Iterator[str]:
        """Every tensor that `tensor` can give."""

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """One tensor in Hugging Face's layout, contiguous, in memory of its own.

        Raises:
            ModelError: there is no such tensor, or it cannot be read.
        """

    def close(self) -> None:
        """Close the files. May be called twice."""


def open_weights(path: Path) -> WeightSource:
    """Open a GGUF file, or a folder with config.json and safetensors files. Reads headers only.

    Raises:
        ModelError: nothing there, a foreign or damaged file, an unsupported architecture or quantisation, or a model
            that lacks a tensor.
    """
    # The readers import this module's neighbours; which of them is needed is known only here.
    from engine.weights.gguf import GGUFWeights
    from engine.weights.safetensors import SafetensorsWeights

    if not path.exists():
        raise ModelError(f"There is no file or folder {path}. Check the path, or choose another model.")
    return SafetensorsWeights(path) if path.is_dir() else GGUFWeights(path)


def expected_shapes(architecture: ModelArchitecture) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that a model of this shape needs, with its shape."""
    embedding = (architecture.vocab_size, architecture.hidden_size)
    yield "model.embed_tokens.weight", embedding
    yield "model.norm.weight", (architecture.hidden_size,)
    if not architecture.tie_word_embeddings:
        yield "lm_head.weight", embedding
    for layer in range(architecture.num_layers):
        for part, shape in _layer_shapes(architecture):
            yield f"model.layers.{layer}.{part}", shape


def _layer_shapes(architecture: ModelArchitecture) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = architecture.hidden_size, architecture.intermediate_size
    queries = architecture.num_heads * architecture.head_dim
    keys = architecture.num_kv_heads * architecture.head_dim
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)
    linears = (
        ("self_attn.q_proj", queries, hidden, architecture.attention_bias),
        ("self_attn.k_proj", keys, hidden, architecture.attention_bias),
        ("self_attn.v_proj", keys, hidden, architecture.attention_bias),
        ("self_attn.o_proj", hidden, queries, architecture.attention_output_bias),
        ("mlp.gate_proj", inner, hidden, architecture.mlp_bias),
        ("mlp.up_proj", inner, hidden, architecture.mlp_bias),
        ("mlp.down_proj", hidden, inner, architecture.mlp_bias),
    )
    for module, rows, columns, has_bias in linears:
        yield f"{module}.weight", (rows, columns)
        if has_bias:
            yield f"{module}.bias", (rows,)


def unexpected_shape(path: Path, name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> ModelError:
    """The error for a tensor that does not fit the model's shape."""
    return ModelError(
        f"{path} cannot be used: its tensor {name} has the shape {list(found)} where the model needs {list(expected)}. "
        "Download the model again, or choose another."
    )
