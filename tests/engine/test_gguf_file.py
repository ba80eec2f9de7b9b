"""The header reader against files that the gguf library writes, and against broken ones."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ModelError
from engine.gguf_file import read_header


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    writer = gguf.GGUFWriter(tmp_path / "small.gguf", "llama")
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -5)
    writer.add_uint16("a.uint16", 60_000)
    writer.add_int16("a.int16", -30_000)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -2_000_000_000)
    writer.add_uint64("a.uint64", 2**63)
    writer.add_int64("a.int64", -(2**62))
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", val=True)
    writer.add_string("a.string", "žluťoučký 世界")
    writer.add_array("a.strings", ["", "a", "世界"])
    writer.add_array("a.numbers", [1, 2, -3])
    writer.add_array("a.floats", [0.25, -1.5])
    writer.add_array("a.flags", [True, False])
    writer.add_tensor("first", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("second", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "small.gguf"


def test_metadata_reads_as_the_library_reads_it(small_file: Path) -> None:
    header = read_header(small_file)
    fields = gguf.GGUFReader(small_file).fields
    expected = {key: field.contents() for key, field in fields.items() if not key.startswith("GGUF.")}
    found = {key: list(value) if isinstance(value, tuple) else value for key, value in header.metadata.items()}
    assert found == expected
    assert header.version == 3


def test_tensors_lie_where_the_header_says(small_file: Path) -> None:
    header = read_header(small_file)
    data = small_file.read_bytes()
    for reference in gguf.GGUFReader(small_file).tensors:
        tensor = header.tensors[reference.name]
        assert tensor.shape == tuple(reversed(reference.shape.tolist()))
        assert tensor.offset_bytes == reference.data_offset
        raw = data[tensor.offset_bytes : tensor.offset_bytes + tensor.num_bytes]
        assert raw == reference.data.tobytes()


@pytest.mark.starter
def test_starter_reads_as_the_library_reads_it(starter_gguf: Path) -> None:
    header = read_header(starter_gguf)
    reader = gguf.GGUFReader(starter_gguf)
    assert header.metadata["tokenizer.ggml.tokens"] == reader.fields["tokenizer.ggml.tokens"].contents()
    assert header.metadata["tokenizer.ggml.merges"][-1] == reader.fields["tokenizer.ggml.merges"].contents(-1)
    found = {
        tensor.name: (tensor.kind.name, tensor.offset_bytes, tensor.num_bytes) for tensor in header.tensors.values()
    }
    assert found == {t.name: (t.tensor_type.name, t.data_offset, t.n_bytes) for t in reader.tensors}


def test_version_2_is_read_too(small_file: Path) -> None:
    data = bytearray(small_file.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    small_file.write_bytes(data)
    assert read_header(small_file).version == 2


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_other_versions_are_refused(small_file: Path, version: int) -> None:
    data = bytearray(small_file.read_bytes())
    data[4:8] = struct.pack("<I", version)
    small_file.write_bytes(data)
    with pytest.raises(ModelError, match="versions 2 and 3"):
        read_header(small_file)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip file", b"\x7fELF"])
def test_foreign_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="is not a GGUF file"):
        read_header(path)


def test_missing_file_and_folder_have_their_sentences(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no file"):
        read_header(tmp_path / "nothing.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        read_header(tmp_path)


def test_every_truncation_is_noticed(small_file: Path) -> None:
    """The last tensor ends the file but for padding; any cut before that end must be found from the header alone."""
    data = small_file.read_bytes()
    last = max(tensor.offset_bytes + tensor.num_bytes for tensor in read_header(small_file).tensors.values())
    for size in range(4, last):
        small_file.write_bytes(data[:size])
        with pytest.raises(ModelError, match="damaged or incomplete"):
            read_header(small_file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_end_in_a_sentence_or_a_header(small_file: Path, data: st.DataObject) -> None:
    content = bytearray(small_file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    damaged = small_file.with_name("damaged.gguf")
    damaged.write_bytes(content)
    try:
        header = read_header(damaged)
    except ModelError:
        return
    ends = [tensor.offset_bytes + tensor.num_bytes for tensor in header.tensors.values()]
    assert max(ends, default=0) <= len(content)


def _header(*, tensors: int = 0, keys: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest


def _string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


WILD: dict[str, Any] = {
    "keys": _header(keys=2**60),
    "tensors": _header(tensors=2**60),
    "string": _header(keys=1, rest=_string(b"", 2**63)),
    "numbers": _header(keys=1, rest=_string(b"k") + struct.pack("<IIQ", 9, 4, 2**61)),
    "strings": _header(keys=1, rest=_string(b"k") + struct.pack("<IIQ", 9, 8, 2**61)),
    "text": _header(keys=1, rest=_string(b"\xff\xfe") + struct.pack("<IB", 0, 1)),
    "value type": _header(keys=1, rest=_string(b"k") + struct.pack("<I", 77)),
    "dimensions": _header(tensors=1, rest=_string(b"t") + struct.pack("<I", 2**31)),
    "alignment": _header(keys=1, rest=_string(b"general.alignment") + struct.pack("<II", 4, 0)),
}


@pytest.mark.parametrize("name", WILD)
def test_wild_numbers_are_not_believed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "wild.gguf"
    path.write_bytes(WILD[name])
    with pytest.raises(ModelError, match="damaged or incomplete"):
        read_header(path)
