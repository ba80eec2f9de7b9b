"""The Triton kernels in Triton's interpreter, on a CPU. Run by `test_kernels`, in a process of its own.

Its products in bfloat16 are wrong: that format is tested on a card (`tests/gpu`).
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.architecture import ModelArchitecture
from engine.attention.backend import LayerWindows
from engine.attention.self_test import agrees_with_reference
from engine.attention.triton_paged import Card, TritonPaged
from engine.model.select_ops import agrees_with_torch
from engine.model.triton_ops import TritonOps
from tests.fakes.attention_scene import Layout, layouts
from tests.fakes.triton_cases import check_attention, check_ops

CPU = torch.device("cpu")
DTYPES = st.sampled_from([torch.float32, torch.float16])


def architecture(**changes: Any) -> ModelArchitecture:
    shape = {
        "family": "qwen3", "name": "tiny", "vocab_size": 8, "hidden_size": 72, "intermediate_size": 100,
        "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "max_position_embeddings": 256, "qk_norm": True,
    }  # fmt: skip
    return ModelArchitecture(**(shape | changes))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@given(
    layout=layouts(max_decodes=2, max_chunks=2, head_dims=(16, 24)), dtype=DTYPES, splits=st.sampled_from([1, 8])
)  # fmt: skip
@example(Layout((), ((0, 16),), 16, (4, 2), contiguous=True, seed=1), torch.float32, 1)
@example(Layout((15, 90), ((16, 1), (0, 40)), 16, (4, 2), contiguous=False, seed=2, window=8), torch.float32, 8)
@example(Layout((90, 3), (), 16, (7, 1), contiguous=False, seed=3, window=70), torch.float16, 8)
@example(Layout((0,), (), 256, (3, 1), contiguous=True, seed=4, window=1, head_dim=16), torch.float16, 8)
@settings(max_examples=8, deadline=None, database=None)
def test_attention_is_the_definition(layout: Layout, dtype: torch.dtype, splits: int) -> None:
    check_attention(layout, dtype, CPU, num_multiprocessors=splits)


@given(
    rows=st.sampled_from([1, 2, 5]), head_dim=st.sampled_from([16, 24, 80]), dtype=DTYPES, has_delta=st.booleans(),
    has_norms=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=8, deadline=None, database=None)
def test_layer_ops_are_their_formulas(
    rows: int, head_dim: int, dtype: torch.dtype, has_delta: bool, has_norms: bool, seed: int
) -> None:
    ops = TritonOps(architecture(head_dim=head_dim))
    check_ops(ops, dtype, CPU, rows=rows, has_delta=has_delta, has_norms=has_norms, seed=seed)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_a_number_stays_visible(poison: float) -> None:
    hidden = torch.randn(3, 72, generator=torch.Generator().manual_seed(1))
    hidden[1, 5] = poison
    ops = TritonOps(architecture())
    for out in (ops.add_norm(hidden, None, torch.ones(72))[1], ops.gate(hidden)):
        assert not out[1].isfinite().all()
        assert out[[0, 2]].isfinite().all()


def test_both_pass_their_self_tests() -> None:
    shape = architecture(num_heads=2, num_kv_heads=1, head_dim=16)
    with torch.inference_mode():
        assert agrees_with_reference(TritonPaged(Card(16, 2**18)), shape, torch.float32, CPU)
        assert agrees_with_torch(TritonOps(shape), shape, torch.float32, CPU)


def test_a_wrong_window_is_found_out() -> None:
    class Narrow(TritonPaged):
        def prepare(self, inputs: Any, cache: Any) -> Any:
            return TritonPaged(self.card, LayerWindows((2900,))).prepare(inputs, cache)

    with torch.inference_mode():
        shape = architecture(num_heads=2, num_kv_heads=1, head_dim=16)
        assert not agrees_with_reference(Narrow(Card(16, 2**18)), shape, torch.float32, CPU)
