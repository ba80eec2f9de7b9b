"""The smallest file with a whole model: one layer of zeros. For tests whose engine reads no file."""

import struct
from math import prod

_UINT32, _FLOAT32, _STRING, _ARRAY = 4, 6, 8, 9
_ALIGNMENT = 32
_FIELDS: dict[str, int | float | str | list[str]] = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 4,
    "llama.feed_forward_length": 4,
    "llama.attention.head_count": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.merges": [],
}
_SQUARES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_TENSORS = {
    "token_embd.weight": (4, 2),
    "output_norm.weight": (4,),
    "blk.0.attn_norm.weight": (4,),
    "blk.0.ffn_norm.weight": (4,),
} | {f"blk.0.{name}.weight": (4, 4) for name in _SQUARES}


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: float | str | list[str]) -> bytes:
    match value:
        case int():
            return struct.pack("<II", _UINT32, value)
        case float():
            return struct.pack("<If", _FLOAT32, value)
        case str():
            return struct.pack("<I", _STRING) + _string(value)
        case list():
            return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))


def model_bytes(fields: dict[str, int | float | str | list[str]] | None = None) -> bytes:
    """A GGUF file of version 3; `fields` replace or add to the usual ones."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(_TENSORS), len(_FIELDS | (fields or {})))]
    parts += [_string(key) + _value(value) for key, value in (_FIELDS | (fields or {})).items()]
    offset = 0
    for name, shape in _TENSORS.items():
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        parts.append(_string(name) + dimensions + struct.pack("<IQ", 0, offset))
        offset += -(-prod(shape) * 4 // _ALIGNMENT) * _ALIGNMENT
    header = b"".join(parts)
    return header + bytes(-len(header) % _ALIGNMENT + offset)


EMPTY_GGUF = model_bytes()
