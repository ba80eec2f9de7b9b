"""Random weights of a real model's shape, for measuring speed where no weights can be had."""

import torch
from torch import Tensor

from engine.architecture import ModelArchitecture, RopeScaling
from engine.errors import UsageError
from engine.weights.expected import expected_shapes

# From the models' own config.json.
_SHAPES = (
    ("qwen3-0.6b", ModelArchitecture(
        family="qwen3", name="Qwen3-0.6B, random weights", vocab_size=151_936, hidden_size=1024,
        intermediate_size=3072, num_layers=28, num_heads=16, num_kv_heads=8, head_dim=128, rms_norm_eps=1e-6,
        rope_theta=1e6, max_position_embeddings=40_960, qk_norm=True, tie_word_embeddings=True,
    )),
    ("qwen3-8b", ModelArchitecture(
        family="qwen3", name="Qwen3-8B, random weights", vocab_size=151_936, hidden_size=4096,
        intermediate_size=12_288, num_layers=36, num_heads=32, num_kv_heads=8, head_dim=128, rms_norm_eps=1e-6,
        rope_theta=1e6, max_position_embeddings=40_960, qk_norm=True,
    )),
    ("llama-3.1-8b", ModelArchitecture(
        family="llama", name="Llama-3.1-8B, random weights", vocab_size=128_256, hidden_size=4096,
        intermediate_size=14_336, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128, rms_norm_eps=1e-5,
        rope_theta=5e5, max_position_embeddings=131_072, rope_scaling=RopeScaling(
            kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
    )),
    ("qwen2.5-7b", ModelArchitecture(
        family="qwen2", name="Qwen2.5-7B, random weights", vocab_size=152_064, hidden_size=3584,
        intermediate_size=18_944, num_layers=28, num_heads=28, num_kv_heads=4, head_dim=128, rms_norm_eps=1e-6,
        rope_theta=1e6, max_position_embeddings=32_768, attention_bias=True,
    )),
    ("mistral-7b", ModelArchitecture(
        family="mistral", name="Mistral-7B-v0.3, random weights", vocab_size=32_768, hidden_size=4096,
        intermediate_size=14_336, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128, rms_norm_eps=1e-5,
        rope_theta=1e6, max_position_embeddings=32_768,
    )),
    ("smollm2-135m", ModelArchitecture(
        family="llama", name="SmolLM2-135M, random weights", vocab_size=49_152, hidden_size=576,
        intermediate_size=1536, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64, rms_norm_eps=1e-5,
        rope_theta=1e5, max_position_embeddings=8192, tie_word_embeddings=True,
    )),
)  # fmt: skip
SHAPES = dict(_SHAPES)


class RandomWeights:
    """A weight source that draws weights and biases from N(0, 0.02), the same for the same name."""

    quantization = "random"

    def __init__(self, shape: str) -> None:
        if shape not in SHAPES:
            raise UsageError(f"There is no shape called {shape!r}; choose one of {', '.join(SHAPES)}.")
        self.architecture = SHAPES[shape]
        self._shapes = dict(expected_shapes(self.architecture))

    def tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        """See WeightSource."""
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=dtype)
        generator = torch.Generator().manual_seed(sum(name.encode()))
        return torch.randn(shape, generator=generator).mul_(0.02).to(dtype)

    def close(self) -> None:
        """Nothing is held."""
