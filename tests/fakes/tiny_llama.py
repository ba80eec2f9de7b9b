"""Tiny random models as transformers saves them, and the same weights as a GGUF file by the gguf library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import LlamaForCausalLM, PreTrainedConfig, PreTrainedModel

from tests.fakes.tiny_checkpoint import tiny_checkpoint

# Llama and Mistral share one graph in ggml, whose rotation pairs neighbouring rows of q and k.
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
TENSOR_NAMES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}


def tiny_llama(**changes: Any) -> LlamaForCausalLM:
    """Random weights from a fixed seed, biases and norms included, in float32."""
    model: LlamaForCausalLM = tiny_checkpoint("llama", **changes)
    return model


def save_folder(model: PreTrainedModel, folder: Path, **options: Any) -> Path:
    """What `save_pretrained` writes."""
    model.save_pretrained(folder, **options)
    return folder


def save_gguf(
    model: PreTrainedModel,
    path: Path,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    extra: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    quantize: Callable[[np.ndarray, gguf.GGMLQuantizationType], np.ndarray] = gguf.quants.quantize,
) -> Path:
    """The model as llama.cpp's converter lays it out: two-dimensional weights as `kind`, the rest as float32.

    Args:
        model: of any family.
        path: the file to write.
        kind: how weights are stored.
        extra: metadata that replaces or adds to the usual, "{arch}" standing for the architecture; None leaves a key
            out.
        tensors: more tensors.
        quantize: makes bytes (rows, bytes of a row) of a weight; the library's own cannot write every kind.
    """
    architecture = ARCHITECTURES[model.config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    fields = [*_metadata(model.config).items(), *(extra or {}).items()]
    for key, value in {key.format(arch=architecture): value for key, value in fields}.items():
        _add(writer, key, value)
    names = gguf.get_tensor_name_map(TENSOR_NAMES[architecture], model.config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        data = _interleaved(name, parameter, model.config).numpy()
        stored = kind if data.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(names, name), quantize(data, stored), raw_dtype=stored)
    for name, data in (tensors or {}).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(config: PreTrainedConfig) -> dict[str, Any]:
    head_dim = head_dim_of(config)
    return {
        "{arch}.block_count": config.num_hidden_layers,
        "{arch}.context_length": config.max_position_embeddings,
        "{arch}.embedding_length": config.hidden_size,
        "{arch}.feed_forward_length": config.intermediate_size,
        "{arch}.attention.head_count": config.num_attention_heads,
        "{arch}.attention.head_count_kv": config.num_key_value_heads,
        "{arch}.attention.key_length": head_dim,
        "{arch}.attention.value_length": head_dim,
        "{arch}.rope.dimension_count": head_dim,
        "{arch}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "{arch}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "tokenizer.ggml.bos_token_id": config.bos_token_id,
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
    }


def head_dim_of(config: PreTrainedConfig) -> int:
    """Qwen2's configuration has no field for it."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


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


def _interleaved(name: str, parameter: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """Rows of q and k by halves become rows by rotating pairs, head by head, one row at a time."""
    if ARCHITECTURES[config.model_type] != "llama":
        return parameter
    if ".q_proj." in name:
        heads = config.num_attention_heads
    elif ".k_proj." in name:
        heads = config.num_key_value_heads
    else:
        return parameter
    half = parameter.shape[0] // heads // 2
    order = [head * 2 * half + part * half + pair for head in range(heads) for pair in range(half) for part in (0, 1)]
    return parameter[order].contiguous()
