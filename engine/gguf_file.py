"""The header of a GGUF file: metadata and where each tensor lies. No tensors, no torch.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian). Everything is
checked against the file's size before it is believed, so a damaged file costs a sentence and no memory.
"""

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from engine.errors import ModelError

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT_BYTES = 32
MAX_DIMENSIONS = 4

# GGUF value types: struct codes of the scalars, then the two compound types.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TENSOR_TAIL = struct.Struct("<IQ")


@dataclass(frozen=True, slots=True)
class TensorKind:
    """A storage type of ggml: `block_size` elements take `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int


# ggml's type numbers. Sizes follow the block structs of ggml-common.h.
TENSOR_KINDS: Mapping[int, TensorKind] = {
    0: TensorKind("F32", 1, 4),
    1: TensorKind("F16", 1, 2),
    2: TensorKind("Q4_0", 32, 18),
    3: TensorKind("Q4_1", 32, 20),
    6: TensorKind("Q5_0", 32, 22),
    7: TensorKind("Q5_1", 32, 24),
    8: TensorKind("Q8_0", 32, 34),
    9: TensorKind("Q8_1", 32, 40),
    10: TensorKind("Q2_K", 256, 84),
    11: TensorKind("Q3_K", 256, 110),
    12: TensorKind("Q4_K", 256, 144),
    13: TensorKind("Q5_K", 256, 176),
    14: TensorKind("Q6_K", 256, 210),
    15: TensorKind("Q8_K", 256, 292),
    16: TensorKind("IQ2_XXS", 256, 66),
    17: TensorKind("IQ2_XS", 256, 74),
    18: TensorKind("IQ3_XXS", 256, 98),
    19: TensorKind("IQ1_S", 256, 50),
    20: TensorKind("IQ4_NL", 32, 18),
    21: TensorKind("IQ3_S", 256, 110),
    22: TensorKind("IQ2_S", 256, 82),
    23: TensorKind("IQ4_XS", 256, 136),
    24: TensorKind("I8", 1, 1),
    25: TensorKind("I16", 1, 2),
    26: TensorKind("I32", 1, 4),
    27: TensorKind("I64", 1, 8),
    28: TensorKind("F64", 1, 8),
    29: TensorKind("IQ1_M", 256, 56),
    30: TensorKind("BF16", 1, 2),
    34: TensorKind("TQ1_0", 256, 54),
    35: TensorKind("TQ2_0", 256, 66),
    39: TensorKind("MXFP4", 32, 17),
}


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is row-major, the reverse of the file's order; `offset` counts from byte 0."""

    name: str
    shape: tuple[int, ...]
    kind: TensorKind
    offset_bytes: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What stands before the tensor data. Arrays in `metadata` are tuples or lists of plain Python values."""

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]


def read_header(path: Path) -> GGUFHeader:
    """Read and check the header.

    Raises:
        ModelError: the file is missing, no GGUF file, of an unknown version or type, or shorter than it claims.
    """
    return _read(path, _Reader)


def skim_header(path: Path) -> GGUFHeader:
    """The same in half the time, with empty lists in the place of vocabularies.

    Raises:
        ModelError: as in `read_header`.
    """
    return _read(path, _Skimmer)


def _read(path: Path, reader: "type[_Reader]") -> GGUFHeader:
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ModelError(
                    f"{path} is not a GGUF file (it does not begin with 'GGUF'). "
                    "Choose a .gguf file or a folder with safetensors files."
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return reader(path, data).read()
    except FileNotFoundError:
        raise ModelError(f"There is no file {path}. Check the path, or choose another model.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}. Check the path and its permissions.") from error
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ModelError(_damaged(path, "its header ends too early or is not valid")) from None


def _damaged(path: Path, reason: str) -> str:
    return f"The GGUF file {path} is damaged or incomplete: {reason}. Download it again."


class _Reader:
    """A cursor over the mapped file; short reads end in struct.error or IndexError."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = len(MAGIC)

    def read(self) -> GGUFHeader:
        version = self._u32()
        if version not in SUPPORTED_VERSIONS:
            raise ModelError(
                f"{self._path} is a GGUF file of version {version}; versions 2 and 3 (little endian) can be read. "
                "Convert the model again with a current converter."
            )
        num_tensors, num_keys = self._u64(), self._u64()
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string()
            metadata[key] = self._value(self._u32())
        records = [self._tensor_record() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelError(_damaged(self._path, f"its alignment is {alignment!r}"))
        data_start = -(-self._at // alignment) * alignment
        tensors = {name: self._place(name, shape, kind, data_start + at) for name, shape, kind, at in records}
        return GGUFHeader(self._path, version, metadata, tensors)

    def _u32(self) -> int:
        value: int = _U32.unpack_from(self._data, self._at)[0]
        self._at += 4
        return value

    def _u64(self) -> int:
        value: int = _U64.unpack_from(self._data, self._at)[0]
        self._at += 8
        return value

    def _string(self) -> str:
        start = self._at + 8
        end = start + self._u64()
        if end > self._size:
            raise IndexError(end)
        self._at = end
        return self._data[start:end].decode("utf-8")

    def _value(self, value_type: int) -> object:
        if value_type == _STRING:
            return self._string()
        if value_type == _ARRAY:
            return self._array()
        code = _SCALARS.get(value_type)
        if code is None:
            raise ModelError(_damaged(self._path, f"it has a value of unknown type {value_type}"))
        return self._scalars(code, 1)[0]

    def _scalars(self, code: str, count: int) -> tuple[Any, ...]:
        # The length is checked before struct sees the count: a wild one must not ask for memory.
        if count > self._size - self._at:
            raise IndexError(count)
        values = struct.unpack_from(f"<{count}{code}", self._data, self._at)
        self._at += count * struct.calcsize(f"<{code}")
        return values

    def _array(self) -> object:
        value_type, count = self._u32(), self._u64()
        if value_type == _STRING:
            return self._strings(count)
        if value_type in _SCALARS:
            return self._scalars(_SCALARS[value_type], count)
        raise ModelError(_damaged(self._path, f"it has an array of type {value_type}"))

    def _strings(self, count: int) -> list[str]:
        """The vocabulary's road: a tight loop, for it runs a hundred thousand times."""
        data, size, at = self._data, self._size, self._at
        length_at: Callable[..., tuple[int]] = _U64.unpack_from
        strings: list[str] = []
        append = strings.append
        for _ in range(count):
            start = at + 8
            at = start + length_at(data, at)[0]
            if at > size:
                raise IndexError(at)
            append(data[start:at].decode("utf-8"))
        self._at = at
        return strings

    def _tensor_record(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._u32()
        if dimensions > MAX_DIMENSIONS:
            raise ModelError(_damaged(self._path, f"the tensor {name} has {dimensions} dimensions"))
        shape = self._scalars("Q", dimensions)
        kind, offset = _TENSOR_TAIL.unpack_from(self._data, self._at)
        self._at += _TENSOR_TAIL.size
        return name, tuple(reversed(shape)), kind, offset

    def _place(self, name: str, shape: tuple[int, ...], kind_number: int, offset_bytes: int) -> GGUFTensor:
        kind = TENSOR_KINDS.get(kind_number)
        if kind is None:
            raise ModelError(
                f"{self._path} stores the tensor {name} in a quantisation that is not known here "
                f"(ggml type {kind_number}). Choose a file in a common one, such as Q4_K_M, Q8_0 or F16."
            )
        elements = prod(shape)
        if elements % kind.block_size or (shape and shape[-1] % kind.block_size):
            raise ModelError(_damaged(self._path, f"the tensor {name} has no whole number of {kind.name} blocks"))
        num_bytes = elements // kind.block_size * kind.block_bytes
        if offset_bytes + num_bytes > self._size:
            missing = offset_bytes + num_bytes - self._size
            raise ModelError(_damaged(self._path, f"the tensor {name} ends {missing:,} bytes behind the file's end"))
        return GGUFTensor(name, shape, kind, offset_bytes, num_bytes)


class _Skimmer(_Reader):
    """Passes over lists of strings."""

    def _strings(self, count: int) -> list[str]:
        data, at = self._data, self._at
        length_at: Callable[..., tuple[int]] = _U64.unpack_from
        for _ in range(count):
            at += 8 + (data[at] if data[at + 1] == 0 and data[at + 2] == 0 else length_at(data, at)[0])
            if at > self._size:
                raise IndexError(at)
        self._at = at
        return []
