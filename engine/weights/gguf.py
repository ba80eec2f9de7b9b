"""Weights from a GGUF file, one tensor at a time, in Hugging Face's names and layout."""

import re
from collections.abc import Iterator
from pathlib import Path

import torch

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.gguf_file import GGUFTensor, read_header
from engine.weights.gguf_layout import check_layout, missing_tensor
from engine.weights.names import gguf_name, hugging_face_name
from engine.weights.quantize import dequantize

INTERLEAVED_FAMILIES = ("llama",)  # ggml rotates neighbouring rows there; elsewhere it rotates halves
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
            self._architecture, self._quantization = check_layout(self._header)
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
            raise missing_tensor(self._header.path, name, stored_name)
        tensor = self._read(record, dtype)
        match = _INTERLEAVED.fullmatch(name) if self._architecture.family in INTERLEAVED_FAMILIES else None
        if match is None:
            return tensor
        heads = self._architecture.num_heads if match[1] == "q" else self._architecture.num_kv_heads
        return undo_interleaving(tensor, heads)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

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
