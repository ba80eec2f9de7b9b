"""Random weights of a real model's shape, for measuring speed where no weights can be had."""

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture
from engine.errors import UsageError

SHAPES = {
    "qwen3-0.6b": ModelArchitecture(
        family="qwen3", name="Qwen3-0.6B, random weights", vocab_size=151_936, hidden_size=1024,
        intermediate_size=3072, num_layers=28, num_heads=16, num_kv_heads=8, head_dim=128, rms_norm_eps=1e-6,
        rope_theta=1e6, max_position_embeddings=40_960, qk_norm=True, tie_word_embeddings=True,
    ),
    "smollm2-135m": ModelArchitecture(
        family="llama", name="SmolLM2-135M, random weights", vocab_size=49_152, hidden_size=576,
        intermediate_size=1536, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64, rms_norm_eps=1e-5,
        rope_theta=1e5, max_position_embeddings=8192, tie_word_embeddings=True,
    ),
}  # fmt: skip


class RandomWeights:
    """A weight source that draws each tensor from N(0, 0.02), the same for the same name."""

    quantization = "random"

    def __init__(self, shape: str) -> None:
        if shape not in SHAPES:
            raise UsageError(f"There is no shape called {shape!r}; choose one of {', '.join(SHAPES)}.")
        self.architecture = SHAPES[shape]

    def tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        """See WeightSource."""
        shape = self._shape(name)
        if len(shape) == 1:
            return torch.ones(shape, dtype=dtype)
        generator = torch.Generator().manual_seed(sum(name.encode()))
        return torch.randn(shape, generator=generator).mul_(0.02).to(dtype)

    def close(self) -> None:
        """Nothing is held."""

    def _shape(self, name: str) -> tuple[int, ...]:
        a = self.architecture
        q_size, kv_size = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "embed_tokens": (a.vocab_size, a.hidden_size), "lm_head": (a.vocab_size, a.hidden_size),
            "q_proj": (q_size, a.hidden_size), "k_proj": (kv_size, a.hidden_size), "v_proj": (kv_size, a.hidden_size),
            "o_proj": (a.hidden_size, q_size), "gate_proj": (a.intermediate_size, a.hidden_size),
            "up_proj": (a.intermediate_size, a.hidden_size), "down_proj": (a.hidden_size, a.intermediate_size),
            "q_norm": (a.head_dim,), "k_norm": (a.head_dim,),
        }  # fmt: skip
        return shapes.get(name.split(".")[-2], (a.hidden_size,))
