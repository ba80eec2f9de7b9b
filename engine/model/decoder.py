"""The decoder of the Llama family as plain functions over loaded weights.

It knows token ids, positions and a function that attends; it knows neither blocks nor sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engine.architecture import ModelArchitecture
from engine.model.layer_ops import LayerOps, TorchOps
from engine.model.linear import Linear, make_linear
from engine.model.rotary import Rotary


class Weights(Protocol):
    """Where weights come from. Names and layouts are those of Hugging Face checkpoints."""

    @property
    def architecture(self) -> ModelArchitecture:
        """The shape of the model."""

    def tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        """A weight, converted, in memory of its own."""

    def close(self) -> None:
        """Let the file go."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer. q, k, v are one product, as are gate and up."""

    input_norm: Tensor
    qkv: Linear
    qk_norms: tuple[Tensor, Tensor] | None
    output: Linear
    post_attention_norm: Tensor
    gate_up: Linear
    down: Linear


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q (tokens, heads, head_dim), k and v (tokens, kv_heads, head_dim)) -> (tokens, heads, head_dim)."""


class Decoder:
    """A loaded model. `forward` gives hidden states, `logits` turns chosen rows of them into scores."""

    def __init__(
        self, architecture: ModelArchitecture, *, embedding: Tensor, layers: tuple[Layer, ...], norm: Tensor,
        head: Linear, rotary: Rotary, ops: LayerOps,
    ) -> None:  # fmt: skip
        self.architecture = architecture
        self._ops = ops
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._rotary = rotary

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states (tokens, hidden) of packed token_ids (tokens,) at positions (tokens,)."""
        hidden = functional.embedding(token_ids, self._embedding)
        angles = self._rotary.tables(positions)
        delta = None
        for index, layer in enumerate(self._layers):
            hidden, x = self._ops.add_norm(hidden, delta, layer.input_norm)
            attended = self._attention(index, layer, x, angles, attend)
            hidden, x = self._ops.add_norm(hidden, attended, layer.post_attention_norm)
            delta = layer.down(self._ops.gate(layer.gate_up(x)))
        return hidden if delta is None else hidden + delta

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores (rows, vocab) of hidden states (rows, hidden)."""
        _, normed = self._ops.add_norm(hidden, None, self._norm)
        return self._head(normed)

    def _attention(
        self, index: int, layer: Layer, x: Tensor, angles: tuple[Tensor, Tensor], attend: Attend
    ) -> Tensor:  # fmt: skip
        shape = self.architecture
        heads = layer.qkv(x).view(x.shape[0], -1, shape.head_dim)
        q, k = self._ops.rotate(heads, angles, layer.qk_norms)
        out = attend(index, q, k, heads[:, shape.num_heads + shape.num_kv_heads :])
        return layer.output(out.reshape(x.shape[0], -1))


def load_decoder(
    weights: Weights, *, dtype: torch.dtype, device: torch.device, max_positions: int, ops: LayerOps | None = None,
    on_layer: Callable[[int], None],
) -> Decoder:  # fmt: skip
    """Read every weight once and put it into the form that computes fastest.

    Args:
        weights: the open model.
        dtype: of weights, activations and the KV cache.
        device: where to compute.
        max_positions: longest context, in tokens.
        ops: the steps between the products; torch's where nothing quicker was chosen.
        on_layer: called with each layer's index before it is read; may raise to stop.
    """
    reader = _Reader(weights, dtype, device)
    architecture = weights.architecture
    embedding = reader.tensor("model.embed_tokens.weight")
    layers = []
    for index in range(architecture.num_layers):
        on_layer(index)
        layers.append(reader.layer(index))
    norm = reader.tensor("model.norm.weight")
    head = make_linear(embedding) if architecture.tie_word_embeddings else reader.linear(["lm_head"], has_bias=False)
    rotary = Rotary(architecture, max_positions, dtype, device)
    return Decoder(
        architecture, embedding=embedding, layers=tuple(layers), norm=norm, head=head, rotary=rotary,
        ops=ops or TorchOps(architecture),
    )  # fmt: skip


class _Reader:
    """Names and joins the weights of one model."""

    def __init__(self, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self._weights = weights
        self._dtype = dtype
        self._device = device

    def tensor(self, name: str) -> Tensor:
        return self._weights.tensor(name, self._dtype).to(self._device)

    def linear(self, names: list[str], *, has_bias: bool) -> Linear:
        """One product from weights stacked along their outputs."""
        weight = _stack([self.tensor(f"{name}.weight") for name in names])
        bias = _stack([self.tensor(f"{name}.bias") for name in names]) if has_bias else None
        return make_linear(weight, bias)

    def _qk_norms(self, attention: str) -> tuple[Tensor, Tensor]:
        return self.tensor(f"{attention}.q_norm.weight"), self.tensor(f"{attention}.k_norm.weight")

    def layer(self, index: int) -> Layer:
        shape = self._weights.architecture
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        return Layer(
            input_norm=self.tensor(f"{prefix}.input_layernorm.weight"),
            qkv=self.linear([f"{attention}.{part}_proj" for part in "qkv"], has_bias=shape.attention_bias),
            qk_norms=self._qk_norms(attention) if shape.qk_norm else None,
            output=self.linear([f"{attention}.o_proj"], has_bias=shape.attention_output_bias),
            post_attention_norm=self.tensor(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self.linear([f"{mlp}.gate_proj", f"{mlp}.up_proj"], has_bias=shape.mlp_bias),
            down=self.linear([f"{mlp}.down_proj"], has_bias=shape.mlp_bias),
        )


def _stack(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
