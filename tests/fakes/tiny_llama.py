"""Tiny random Llamas as transformers saves them, and the same weights as a GGUF file written by the gguf library."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TINY = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny_llama(**changes: Any) -> LlamaForCausalLM:
    """Random weights from a fixed seed, biases and norms included, in float32."""
    model = LlamaForCausalLM(LlamaConfig(**(TINY | changes)))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.eval()


def save_folder(model: LlamaForCausalLM, folder: Path, **options: Any) -> Path:
    """What `save_pretrained` writes."""
    model.save_pretrained(folder, **options)
    return folder


def save_gguf(
    model: LlamaForCausalLM,
    path: Path,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    extra: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """The model as llama.cpp's converter lays it out: two-dimensional weights as `kind`, the rest as float32.

    Args:
        model: a tiny Llama.
        path: the file to write.
        kind: how weights are stored.
        extra: metadata that replaces or adds to the usual; None leaves a key out.
        tensors: more tensors.
    """
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (_metadata(model.config) | (extra or {})).items():
        _add(writer, key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        data = _interleaved(name, parameter, model.config).numpy()
        stored = kind if data.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(names, name), gguf.quants.quantize(data, stored), raw_dtype=stored)
    for name, data in (tensors or {}).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(config: LlamaConfig) -> dict[str, Any]:
    return {
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.key_length": config.head_dim,
        "llama.attention.value_length": config.head_dim,
        "llama.rope.dimension_count": config.head_dim,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "tokenizer.ggml.bos_token_id": config.bos_token_id,
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case None:
            return
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)


def _gguf_name(names: gguf.TensorNameMap, name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    found = names.get_name(stem)
    assert found is not None, name
    return f"{found}.{suffix}"


def _interleaved(name: str, parameter: torch.Tensor, config: LlamaConfig) -> torch.Tensor:
    """Rows of q and k by halves become rows by rotating pairs, head by head, one row at a time."""
    if ".q_proj." in name:
        heads = config.num_attention_heads
    elif ".k_proj." in name:
        heads = config.num_key_value_heads
    else:
        return parameter
    half = parameter.shape[0] // heads // 2
    order = [head * 2 * half + part * half + pair for head in range(heads) for pair in range(half) for part in (0, 1)]
    return parameter[order].contiguous()
