"""Logits of the decoder with the plainest attention there is, against transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.architecture import ModelArchitecture
from engine.errors import LoadCancelledError
from engine.model.decoder import Decoder, load_decoder
from engine.weights.source import open_weights
from tests.fakes.tiny_llama import save_folder, tiny_llama

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "attention-bias": {"attention_bias": True},
    "tied": {"tie_word_embeddings": True},
    "mha": {"num_key_value_heads": 4},
    "one-key-head": {"num_key_value_heads": 1},
    "wide-heads": {"head_dim": 24},
    "large-epsilon": {"rms_norm_eps": 0.1},
}
TOKENS = torch.randint(0, 96, (40,), generator=torch.Generator().manual_seed(1))
CPU = torch.device("cpu")


def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The whole sequence at once: no cache, no blocks."""
    parts = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    return functional.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True)[0].transpose(0, 1)


@torch.inference_mode()
def our_logits(decoder: Decoder) -> Tensor:
    return decoder.logits(decoder.forward(TOKENS, torch.arange(len(TOKENS)), attend))


@torch.inference_mode()
def reference_logits(model: torch.nn.Module) -> Tensor:
    logits: Tensor = model(TOKENS.unsqueeze(0)).logits[0]
    return logits


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_transformers(variant: str, tmp_path: Path) -> None:
    model = tiny_llama(**VARIANTS[variant])
    weights = open_weights(save_folder(model, tmp_path / "tiny"))
    visited: list[int] = []
    with torch.inference_mode():
        decoder = load_decoder(weights, dtype=torch.float32, device=CPU, max_positions=64, on_layer=visited.append)
    weights.close()
    assert visited == [0, 1]
    torch.testing.assert_close(our_logits(decoder), reference_logits(model), rtol=1e-5, atol=1e-5)


class StateDict:
    """Weights that lie in memory."""

    def __init__(self, architecture: ModelArchitecture, tensors: dict[str, Tensor]) -> None:
        self.architecture = architecture
        self._tensors = tensors

    def tensor(self, name: str, dtype: torch.dtype) -> Tensor:
        return self._tensors[name].detach().to(dtype).clone()

    def close(self) -> None:
        pass


def test_normalised_queries_and_keys_are_qwen3s() -> None:
    """No file of this family is read yet, but random weights of its shape are measured."""
    sizes = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32}
    model = Qwen3ForCausalLM(Qwen3Config(num_attention_heads=4, num_key_value_heads=2, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.3)
    architecture = ModelArchitecture(
        family="qwen3", name="tiny", vocab_size=96, hidden_size=64, intermediate_size=96, num_layers=2, num_heads=4,
        num_kv_heads=2, head_dim=32, rms_norm_eps=1e-6, rope_theta=10_000.0, max_position_embeddings=64, qk_norm=True,
    )  # fmt: skip
    with torch.inference_mode():
        decoder = load_decoder(
            StateDict(architecture, model.state_dict()), dtype=torch.float32, device=CPU, max_positions=64,
            on_layer=lambda _index: None,
        )  # fmt: skip
    torch.testing.assert_close(our_logits(decoder), reference_logits(model), rtol=1e-5, atol=1e-5)
    assert architecture.num_parameters == model.num_parameters()


def test_a_load_can_be_stopped_between_layers(tmp_path: Path) -> None:
    def stop(index: int) -> None:
        if index == 1:
            raise LoadCancelledError

    weights = open_weights(save_folder(tiny_llama(), tmp_path / "tiny"))
    with pytest.raises(LoadCancelledError):
        load_decoder(weights, dtype=torch.float32, device=CPU, max_positions=64, on_layer=stop)
    weights.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_counted(variant: str, tmp_path: Path) -> None:
    model = tiny_llama(**VARIANTS[variant])
    weights = open_weights(save_folder(model, tmp_path / "tiny"))
    weights.close()
    assert weights.architecture.num_parameters == model.num_parameters()
