"""Weights from a GGUF file, one tensor at a time, in Hugging Face's names and layout."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.gguf_file import GGUFHeader, GGUFTensor, read_header
from engine.weights.gguf_metadata import architecture_from_header
from engine.weights.names import gguf_name, hugging_face_name
from engine.weights.quantize import SUPPORTED_KINDS, dequantize, unsupported_kind
from engine.weights.source import expected_shapes, unexpected_shape

ROPE_FACTORS = "rope_freqs.weight"
_INTERLEAVED = re.compile(r".*\.self_attn\.(q|k)_proj\.(weight|bias)")


class GGUFWeights:
    """A WeightSource over one GGUF file.

    Raises:
        ModelError: before any weight is read, when the file cannot be run.
    """

    def __init__(self, path: Path) -> None:
        self._header = read_header(path)
        self._file = path.open("rb", buffering=0)
        try:
            self._quantization = _quantization(self._header)
            self._architecture = self._read_architecture()
            self._check()
        except BaseException:
            self.close()
            raise

    @property
    def architecture(self) -> ModelArchitecture:
        """The model's shape."""
        return self._architecture

    @property
    def quantization(self) -> str:
        """The storage type of most of the weights."""
        return self._quantization

    def tensor_names(self) -> Iterator[str]:
        """Every tensor with a Hugging Face name."""
        return (name for record in self._header.tensors if (name := hugging_face_name(record)) is not None)

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """One tensor, dequantised; see WeightSource."""
        stored_name = gguf_name(name)
        record = self._header.tensors.get(stored_name) if stored_name is not None else None
        if record is None:
            raise _missing(self._header.path, name, stored_name)
        tensor = self._read(record, dtype)
        match = _INTERLEAVED.fullmatch(name)
        if match is None:
            return tensor
        heads = self._architecture.num_heads if match[1] == "q" else self._architecture.num_kv_heads
        return undo_interleaving(tensor, heads)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_architecture(self) -> ModelArchitecture:
        record = self._header.tensors.get(ROPE_FACTORS)
        factors = tuple(self._read(record, torch.float32).tolist()) if record is not None else ()
        architecture = architecture_from_header(self._header, frequency_factors=factors)
        suffix = re.compile(rf"[.\-_]{re.escape(self._quantization)}$", re.IGNORECASE)
        return replace(architecture, name=suffix.sub("", architecture.name))

    def _check(self) -> None:
        for name, shape in expected_shapes(self._architecture):
            stored_name = gguf_name(name)
            record = self._header.tensors.get(stored_name) if stored_name is not None else None
            if record is None:
                raise _missing(self._header.path, name, stored_name)
            if record.kind.name not in SUPPORTED_KINDS:
                raise ModelError(unsupported_kind(record.kind.name))
            if record.shape != shape:
                raise unexpected_shape(self._header.path, name, record.shape, shape)

    def _read(self, record: GGUFTensor, dtype: torch.dtype) -> torch.Tensor:
        raw = bytearray(record.num_bytes)
        self._file.seek(record.offset_bytes)
        target = memoryview(raw)
        while target:
            count = self._file.readinto(target)
            if not count:
                raise ModelError(f"{self._header.path} became shorter while it was read. Download it again.")
            target = target[count:]
        return dequantize(torch.frombuffer(raw, dtype=torch.uint8), record.kind, dtype).view(record.shape)


def undo_interleaving(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of q or k from ggml's order (pairs that rotate together are neighbours) to transformers' (two halves).

    Args:
        tensor: (num_heads * head_dim, in) or (num_heads * head_dim,).
        num_heads: heads in it.
    """
    rows = tensor.shape[0]
    pairs = tensor.view(num_heads, rows // num_heads // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)


def _quantization(header: GGUFHeader) -> str:
    """What most elements are stored as."""
    elements: Counter[str] = Counter()
    for record in header.tensors.values():
        elements[record.kind.name] += record.num_bytes // record.kind.block_bytes * record.kind.block_size
    if not elements:
        raise ModelError(f"{header.path} holds no tensors, only metadata. Choose a file with a whole model.")
    return elements.most_common(1)[0][0]


def _missing(path: Path, name: str, stored_name: str | None) -> ModelError:
    also = f" ({stored_name} in the file)" if stored_name is not None else ""
    return ModelError(f"{path} has no tensor {name}{also}. Choose a file with a whole model, or download it again.")
