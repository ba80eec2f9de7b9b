"""Whether a GGUF file holds a model that can be computed: every tensor there, of the right shape and kind. No torch."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from engine.architecture import ModelArchitecture
from engine.errors import ModelError
from engine.gguf_file import GGUFHeader
from engine.weights.expected import expected_shapes, unexpected_shape
from engine.weights.gguf_metadata import architecture_from_header
from engine.weights.names import gguf_name

READABLE_KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32")


def check_layout(header: GGUFHeader) -> tuple[ModelArchitecture, str]:
    """The shape, and the storage type of most of the weights.

    Raises:
        ModelError: the file cannot be run.
    """
    quantization = _quantization(header)
    architecture = architecture_from_header(header)
    for name, shape in expected_shapes(architecture):
        stored_name = gguf_name(name)
        record = header.tensors.get(stored_name) if stored_name is not None else None
        if record is None:
            raise missing_tensor(header.path, name, stored_name)
        if record.kind.name not in READABLE_KINDS:
            raise ModelError(unsupported_kind(record.kind.name))
        if record.shape != shape:
            raise unexpected_shape(header.path, name, record.shape, shape)
    suffix = re.compile(rf"[.\-_]{re.escape(quantization)}(_[SML])?$", re.IGNORECASE)
    return replace(architecture, name=suffix.sub("", architecture.name)), quantization


def _quantization(header: GGUFHeader) -> str:
    """What most elements are stored as."""
    elements: Counter[str] = Counter()
    for record in header.tensors.values():
        elements[record.kind.name] += record.num_bytes // record.kind.block_bytes * record.kind.block_size
    if not elements:
        raise ModelError(f"{header.path} holds no tensors, only metadata. Choose a file with a whole model.")
    return elements.most_common(1)[0][0]


def missing_tensor(path: Path, name: str, stored_name: str | None) -> ModelError:
    """The error for a tensor that the file lacks."""
    also = f" ({stored_name} in the file)" if stored_name is not None else ""
    return ModelError(f"{path} has no tensor {name}{also}. Choose a file with a whole model, or download it again.")


def unsupported_kind(kind_name: str) -> str:
    """The sentence for a quantisation that cannot be read."""
    return (
        f"The model is quantised as {kind_name}, which cannot be read. "
        f"Choose a file in {', '.join(READABLE_KINDS[:-1])} or {READABLE_KINDS[-1]}."
    )
