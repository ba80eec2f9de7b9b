"""Logits of the decoder with the plainest attention there is, against transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

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
