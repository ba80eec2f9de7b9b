"""Which tensors a model of a shape needs. Names and shapes, no files, no torch."""

from collections.abc import Iterator
from pathlib import Path

from engine.architecture import ModelArchitecture
from engine.errors import ModelError


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
    if architecture.qk_norm:
        yield "self_attn.q_norm.weight", (architecture.head_dim,)
        yield "self_attn.k_norm.weight", (architecture.head_dim,)
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
