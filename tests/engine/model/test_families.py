"""Logits of every family and every rotary scaling, from the files that transformers writes, against transformers.

The attention here is the plainest there is: a whole sequence, and for each layer the window that the model was read to
have.
"""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from engine.architecture import ModelArchitecture
from engine.model.decoder import load_decoder
from engine.weights.names import hugging_face_name
from engine.weights.source import open_weights
from tests.fakes.gguf_blocks import random_blocks
from tests.fakes.tiny_checkpoint import FAMILIES, HEAD_DIM, ROPES, longrope, tiny_checkpoint
from tests.fakes.tiny_llama import save_folder, save_gguf

LENGTH = 100
TOKENS = torch.randint(0, 96, (LENGTH,), generator=torch.Generator().manual_seed(1))
TOLERANCE = 1e-4
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 2": ("llama", {"num_key_value_heads": 4}),
    "llama 3": ("llama", {"rope_parameters": dict(ROPES["llama3"]), "eos_token_id": [2, 3, 4]}),
    "llama 3 small": ("llama", {"rope_parameters": dict(ROPES["llama3"]), "tie_word_embeddings": True}),
    "smollm2": ("llama", {"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 1,
                          "tie_word_embeddings": True, "head_dim": HEAD_DIM}),
    "tinyllama": ("llama", {"num_key_value_heads": 1, "rms_norm_eps": 1e-5}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "mistral, its usual window": ("mistral", {"sliding_window": 4096}),
    "mistral, a short window": ("mistral", {"sliding_window": 8}),
    "mistral, one token": ("mistral", {"sliding_window": 1}),
    "mistral, wide heads": ("mistral", {"head_dim": 32, "sliding_window": LENGTH - 1}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "qwen2, a window above": ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "qwen2, a window everywhere": ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}),
    "qwen2, a window nowhere": ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    "qwen2, a window not used": ("qwen2", {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}),
    "qwen2, a window below": ("qwen2", {"use_sliding_window": True, "sliding_window": 8,
                                        "layer_types": ["sliding_attention", "full_attention"]}),
    "qwen3": ("qwen3", {}),
    "qwen3, narrow heads": ("qwen3", {"head_dim": 8}),
    "qwen3 tied": ("qwen3", {"tie_word_embeddings": True, "rms_norm_eps": 1e-2}),
    "qwen3 with biases": ("qwen3", {"attention_bias": True}),
    "qwen3, a window above": ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
}  # fmt: skip
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def attention_of(architecture: ModelArchitecture) -> Attend:
    """Causal attention in which a query sees itself and what its layer's window leaves of the tokens before it."""
    ages = torch.arange(LENGTH).unsqueeze(1) - torch.arange(LENGTH)
    windows = architecture.layer_windows or (None,) * architecture.num_layers

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        window = windows[layer]
        visible = (ages >= 0) & (ages < (LENGTH if window is None else window))
        parts = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out = functional.scaled_dot_product_attention(*parts, attn_mask=visible, enable_gqa=True)
        return out[0].transpose(0, 1)

    return attend


@torch.inference_mode()
def our_logits(path: Path) -> Tensor:
    with closing(open_weights(path)) as weights:
        decoder = load_decoder(
            weights, dtype=torch.float32, device=torch.device("cpu"), max_positions=LENGTH, on_layer=lambda _: None
        )
    hidden = decoder.forward(TOKENS, torch.arange(LENGTH), attention_of(decoder.architecture))
    return decoder.logits(hidden)


@torch.inference_mode()
def assert_logits(path: Path, model: Any, tolerance: float = TOLERANCE) -> None:
    expected = model(TOKENS.unsqueeze(0), use_cache=False).logits[0]
    torch.testing.assert_close(our_logits(path), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_a_folder_are_transformers(name: str, tmp_path: Path) -> None:
    family, changes = MODELS[name]
    model = tiny_checkpoint(family, **changes)
    folder = save_folder(model, tmp_path / "tiny", max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert_logits(folder, model)
    with closing(open_weights(folder)) as weights:
        assert weights.architecture.family == family
        assert weights.architecture.num_parameters == model.num_parameters()


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_every_rope(family: str, rope: str, tmp_path: Path) -> None:
    head_dim = 32 if family == "qwen3" else HEAD_DIM
    parameters = longrope(head_dim) if rope == "longrope" else dict(ROPES[rope])
    model = tiny_checkpoint(family, rope_parameters=parameters)
    assert_logits(save_folder(model, tmp_path / "tiny"), model)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_a_gguf_are_transformers(name: str, tmp_path: Path) -> None:
    """GGUF's converter writes no windows; a file may name one that all layers have."""
    family, changes = MODELS[name]
    model = tiny_checkpoint(family, **changes)
    window = model.config.sliding_window if family == "mistral" else None
    if getattr(model.config, "use_sliding_window", False):
        model.set_attn_implementation("eager")
        model.config.layer_types = ["full_attention"] * 2
        for layer in model.model.layers:
            layer.self_attn.sliding_window = None
    factors = rope_factors(model) if "llama3" in str(changes) else {}
    path = save_gguf(model, tmp_path / "tiny.gguf", extra={"{arch}.attention.sliding_window": window}, tensors=factors)
    assert_logits(path, model)


def rope_factors(model: Any) -> dict[str, Any]:
    """Llama 3's scaling as a GGUF file carries it: what each frequency is divided by."""
    module = model.model.rotary_emb
    plain, _ = module.compute_default_rope_parameters(model.config)
    return {"rope_freqs.weight": (plain / module.inv_freq).numpy()}


ROPE_FIELDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "linear": lambda rope: {"type": "linear", "factor": rope["factor"]},
    "yarn": lambda rope: {"type": "yarn", "factor": rope["factor"], "original_context_length": 64},
    "yarn with limits": lambda rope: {
        "type": "yarn", "factor": rope["factor"], "original_context_length": 64,
        "yarn_beta_fast": rope["beta_fast"], "yarn_beta_slow": rope["beta_slow"],
    },
    "yarn with attention": lambda rope: {
        "type": "yarn", "factor": rope["factor"], "original_context_length": 64,
        "yarn_attn_factor": rope["attention_factor"],
    },
    "longrope": lambda _: {"type": "longrope", "original_context_length": 64, "attn_factor": LONGROPE_MAGNITUDE},
}  # fmt: skip
GGUF_ROPES: dict[str, dict[str, Any]] = {
    "linear": dict(ROPES["linear"]),
    "yarn": dict(ROPES["yarn"]),
    "yarn with limits": ROPES["yarn"] | {"beta_fast": 8.0, "beta_slow": 0.5},
    "yarn with attention": ROPES["yarn"] | {"attention_factor": 1.5},
    "longrope": longrope(HEAD_DIM),
}
LONGROPE_MAGNITUDE = (1 + math.log(4) / math.log(64)) ** 0.5


@pytest.mark.parametrize("name", GGUF_ROPES)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_logits_of_a_gguf_with_scaling_are_transformers(family: str, name: str, tmp_path: Path) -> None:
    """The converter writes what config.json says: numbers as keys, the lists of longrope as tensors."""
    rope = GGUF_ROPES[name]
    model = tiny_checkpoint(family, rope_parameters=dict(rope))
    fields = {f"{{arch}}.rope.scaling.{key}": value for key, value in ROPE_FIELDS[name](rope).items()}
    lists = {f"rope_factors_{which}.weight": rope.get(f"{which}_factor") for which in ("long", "short")}
    tensors = {key: np.array(values, np.float32) for key, values in lists.items() if values is not None}
    path = save_gguf(model, tmp_path / "tiny.gguf", extra=fields, tensors=tensors)
    assert_logits(path, model)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q5_1", "BF16"])
def test_logits_of_quantised_weights_are_transformers(kind: str, tmp_path: Path) -> None:
    """Random blocks, decoded by the gguf library for the reference; Qwen2's rows keep their order."""
    model = tiny_checkpoint("qwen2", hidden_size=256, intermediate_size=256, num_attention_heads=4)
    stored = gguf.GGMLQuantizationType[kind]
    path = save_gguf(model, tmp_path / "tiny.gguf", kind=stored, quantize=random_rows)
    weights = {
        hugging_face_name(tensor.name): torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(path).tensors
    }
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    assert_logits(path, model)


def random_rows(data: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """What the library can quantise is quantised; of other kinds, rows of random blocks."""
    try:
        return gguf.quants.quantize(data, kind)
    except NotImplementedError:
        block_size, _ = gguf.GGML_QUANT_SIZES[kind]
        blocks = random_blocks(kind.name, data.size // block_size, seed=data.size, scale=2e-4)
        return blocks.reshape(data.shape[0], -1)


def edit_config(folder: Path, *, drop: tuple[str, ...] = (), **changes: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if key not in drop}))
    return folder


OLD_SPELLINGS: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "qwen2 before layer_types": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, ("layer_types",), {}),
    "qwen3 before layer_types": (
        "qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, ("layer_types",), {}),
    "qwen2, how many full layers not said": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 28},
        ("layer_types", "max_window_layers"), {}),
    "qwen2, older names of layers": (
        "qwen2", {}, (), {"layer_types": ["attention", "attention"]}),
    "qwen2, no window at all": (
        "qwen2", {}, ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers"), {}),
    "mistral, a window not mentioned": ("mistral", {"sliding_window": 4096}, ("sliding_window",), {}),
    "mistral with layer_types": (
        "mistral", {"sliding_window": 8}, (), {"layer_types": ["full_attention", "sliding_attention"]}),
    "mistral with layer_types null": ("mistral", {"sliding_window": 8}, (), {"layer_types": None}),
    "llama with a window, which it ignores": ("llama", {}, (), {"sliding_window": 8, "use_sliding_window": True}),
    "qwen2 with settings of others": ("qwen2", {}, (), {"attention_bias": False, "mlp_bias": True}),
    "mistral with settings of others": ("mistral", {}, (), {"attention_bias": True, "mlp_bias": True}),
    "rope as before version 5": (
        "qwen2", {"rope_parameters": dict(ROPES["yarn"]) | {"rope_theta": 5000.0}}, ("rope_parameters",),
        {"rope_theta": 5000.0,
         "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}),
    "theta alone": (
        "llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}, ("rope_parameters",),
        {"rope_theta": 5000.0, "rope_scaling": None}),
    "sizes not said": (
        "llama", {"num_key_value_heads": 4}, ("head_dim", "num_key_value_heads", "rms_norm_eps", "model_type"), {}),
    "sizes null": ("llama", {"num_key_value_heads": 4}, (), {"head_dim": None, "num_key_value_heads": None}),
    "no class named": ("qwen3", {}, ("architectures",), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD_SPELLINGS)
def test_configs_of_other_versions_mean_what_transformers_reads(name: str, tmp_path: Path) -> None:
    """The reference is loaded from the very same file."""
    family, changes, drop, edits = OLD_SPELLINGS[name]
    folder = save_folder(tiny_checkpoint(family, **changes), tmp_path / "tiny")
    edit_config(folder, drop=drop, **edits)
    if "model_type" in drop:  # transformers needs it; we take the class for it
        model = FAMILIES[family].model_class.from_pretrained(folder, dtype=torch.float32)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert_logits(folder, model)
