"""Dequantisation against the gguf library's own, on random bytes."""

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelError
from engine.gguf_file import TENSOR_KINDS
from engine.weights.gguf_layout import READABLE_KINDS
from engine.weights.quantize import SLICE_ELEMENTS, SUPPORTED_KINDS, dequantize
from tests.fakes.gguf_blocks import KINDS, random_blocks

QUANTIZED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


@pytest.mark.parametrize("name", QUANTIZED)
@given(num_blocks=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_blocks_equal_the_library(name: str, num_blocks: int, seed: int) -> None:
    blocks = random_blocks(name, num_blocks, seed)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    found = dequantize(torch.from_numpy(blocks).flatten(), KINDS[name], torch.float32)
    assert np.array_equal(found.numpy(), expected.reshape(-1))


@pytest.mark.parametrize("name", QUANTIZED)
def test_slices_join_without_a_seam(name: str) -> None:
    blocks = random_blocks(name, 2 * (SLICE_ELEMENTS // KINDS[name].block_size) + 7, seed=1)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    found = dequantize(torch.from_numpy(blocks).flatten(), KINDS[name], torch.float32)
    assert np.array_equal(found.numpy(), expected.reshape(-1))


@pytest.mark.parametrize("name", QUANTIZED)
def test_other_dtypes_are_rounded_once(name: str) -> None:
    raw = torch.from_numpy(random_blocks(name, 50, seed=2)).flatten()
    exact = dequantize(raw, KINDS[name], torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(dequantize(raw, KINDS[name], dtype), exact.to(dtype))


@pytest.mark.parametrize(("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_plain_types_keep_their_values(name: str, dtype: torch.dtype) -> None:
    values = torch.randn(100).to(dtype)
    raw = values.view(torch.uint8)
    found = dequantize(raw, KINDS[name], dtype)
    assert torch.equal(found, values)
    assert found.data_ptr() != raw.data_ptr()
    assert torch.equal(dequantize(raw, KINDS[name], torch.float32), values.float())


@pytest.mark.parametrize("name", sorted(set(KINDS) - SUPPORTED_KINDS))
def test_other_quantisations_are_named(name: str) -> None:
    with pytest.raises(ModelError, match=f"quantised as {name}, which cannot be read"):
        dequantize(torch.zeros(KINDS[name].block_bytes, dtype=torch.uint8), KINDS[name], torch.float32)


def test_what_a_header_promises_can_be_read() -> None:
    assert frozenset(READABLE_KINDS) == SUPPORTED_KINDS


def test_the_table_of_types_is_the_librarys() -> None:
    for number, kind in TENSOR_KINDS.items():
        known = gguf.GGMLQuantizationType(number)
        assert (kind.name, (kind.block_size, kind.block_bytes)) == (known.name, gguf.GGML_QUANT_SIZES[known])
