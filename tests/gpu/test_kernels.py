"""The Triton kernels, compiled, against brute force in float64: every format, head size and block size."""

import math
import random

import pytest
import torch

from engine.architecture import ModelArchitecture
from engine.attention.select import select_backend
from engine.attention.triton_paged import Card, TritonPaged
from engine.model.select_ops import select_ops
from engine.model.triton_ops import TritonOps
from tests.fakes.attention_scene import HEADS, Layout, Scene
from tests.fakes.triton_cases import TOLERANCES, check_attention, check_ops

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
HEAD_DIMS = [64, 80, 96, 128, 192, 256]
BLOCK_SIZES = [16, 32, 64, 128, 256]


def architecture(**changes: object) -> ModelArchitecture:
    shape: dict[str, object] = {
        "family": "qwen3", "name": "tiny", "vocab_size": 8, "hidden_size": 1000, "intermediate_size": 3000,
        "num_layers": 2, "num_heads": 16, "num_kv_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "max_position_embeddings": 256, "qk_norm": True,
    }  # fmt: skip
    return ModelArchitecture(**(shape | changes))  # type: ignore[arg-type]


def random_layout(seed: int, *, head_dim: int, block_size: int, longest: int = 700) -> Layout:
    rng = random.Random(seed)
    decodes = tuple(rng.randrange(longest) for _ in range(rng.randrange(1, 6)))
    chunks = tuple((rng.choice([0, rng.randrange(longest)]), rng.randrange(1, 300)) for _ in range(rng.randrange(1, 4)))
    return Layout(
        decodes, chunks, block_size, rng.choice(HEADS), contiguous=False, seed=seed, head_dim=head_dim,
        window=rng.choice([0, 0, 1, 30, 200]),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("index", "head_dim"), list(enumerate(HEAD_DIMS)))
def test_attention_with_the_tiles_of_this_card(
    device: torch.device, dtype: torch.dtype, index: int, head_dim: int
) -> None:
    block_size = BLOCK_SIZES[(index + DTYPES.index(dtype)) % len(BLOCK_SIZES)]
    card = Card.of(device)
    scene = Scene(
        random_layout(10 * index, head_dim=head_dim, block_size=block_size), dtype, device=device, garbage=math.nan
    )
    found = scene.computed(lambda windows: TritonPaged(card, windows))
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found.double(), scene.expected(), rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("seed", range(4))
def test_attention_with_small_tiles(device: torch.device, seed: int) -> None:
    layout = random_layout(seed, head_dim=64, block_size=16, longest=100)
    check_attention(layout, DTYPES[seed % 2], device, num_multiprocessors=8 ** (seed % 2))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 255, 256, 257, 4095, 30_000])
@pytest.mark.parametrize("block_size", [16, 256])
def test_decode_and_the_last_rows_of_a_prefill_at_this_length(
    device: torch.device, length: int, block_size: int
) -> None:
    last = min(length, 20)
    layout = Layout((length - 1, 3), ((length - last, last),), block_size, (16, 8), contiguous=False, seed=length,
                    head_dim=128)  # fmt: skip
    scene = Scene(layout, torch.bfloat16, device=device, garbage=math.nan)
    card = Card.of(device)
    found = scene.computed(lambda windows: TritonPaged(card, windows))
    torch.testing.assert_close(found.double(), scene.expected(), rtol=2**-7, atol=2**-7)


def test_a_lone_decode_row_is_shared_by_many_programs(device: torch.device) -> None:
    layout = Layout((4095,), (), 16, (16, 8), contiguous=False, seed=5, head_dim=128, window=1000)
    check_attention(layout, torch.bfloat16, device, num_multiprocessors=132)


def test_blocks_beyond_two_to_the_31_elements(device: torch.device) -> None:
    layout = Layout((100, 2000), ((50, 300),), 16, (16, 8), contiguous=False, seed=7, head_dim=128)
    scene = Scene(layout, torch.bfloat16, device=device, spare_blocks=2**31 // (16 * 8 * 128) + 10, num_layers=1)
    found = scene.computed(lambda windows: TritonPaged(Card.of(device), windows))
    torch.testing.assert_close(found.double(), scene.expected(), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 257])
def test_layer_ops(device: torch.device, dtype: torch.dtype, rows: int) -> None:
    for has_norms in (True, False):
        for head_dim in (64, 80, 128):
            ops = TritonOps(architecture(head_dim=head_dim))
            check_ops(ops, dtype, device, rows=rows, has_delta=has_norms, has_norms=has_norms, seed=rows)


@pytest.mark.parametrize("block_size", [16, 256])
def test_both_are_chosen_here(device: torch.device, block_size: int) -> None:
    shape = architecture()
    selection = select_backend(shape, None, dtype=torch.bfloat16, device=device, block_size=block_size)
    assert isinstance(selection.backend, TritonPaged)
    assert isinstance(select_ops(shape, None, dtype=torch.bfloat16, device=device), TritonOps)
