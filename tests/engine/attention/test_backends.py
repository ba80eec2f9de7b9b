"""Attention over the paged cache against a brute force in float64, on layouts that nobody would think of.

Unused slots hold large finite values: a back end that reads what it should not is found out. NaN cannot stand there:
the pages come zeroed from the kernel, and only keys and values of computed tokens are ever written; a masked slot is
multiplied by a probability of exactly 0, which makes 0 of every finite number.
"""

import functools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.attention.backend import LayerWindows
from engine.attention.gather_sdpa import GatherSdpa
from engine.attention.native_paged import NativePaged
from engine.attention.reference import ReferenceAttention
from engine.native import load_kernels
from engine.native.kernels import Kernels
from tests.fakes.attention_scene import HEAD_DIM, NUM_LAYERS, Layout, Scene, layouts


@functools.cache
def kernels() -> Kernels:
    loaded = load_kernels(head_dim=HEAD_DIM, dtype=torch.bfloat16, device=torch.device("cpu"))
    assert loaded is not None
    return loaded


def native_paged(windows: LayerWindows) -> NativePaged:
    return NativePaged(kernels(), windows)


ALL_DTYPES = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Tolerances."""

BACKENDS = {
    "gather": (GatherSdpa, list(ALL_DTYPES)),
    "reference": (ReferenceAttention, list(ALL_DTYPES)),
    "native": (native_paged, [torch.bfloat16]),
}


@pytest.mark.parametrize("name", BACKENDS)
@given(data=st.data(), layout=layouts())
@example(None, Layout((), ((0, 16),), 16, (4, 2), contiguous=True, seed=1))
@example(None, Layout((15, 16, 31), ((16, 1), (0, 40)), 16, (4, 2), contiguous=False, seed=2, window=8))
@example(None, Layout((0,), (), 256, (3, 1), contiguous=True, seed=3, window=1))
@settings(max_examples=60, deadline=None)
def test_attention_is_the_definition(name: str, data: st.DataObject | None, layout: Layout) -> None:
    make_backend, dtypes = BACKENDS[name]
    dtype = dtypes[0] if data is None else data.draw(st.sampled_from(dtypes))
    scene = Scene(layout, dtype)
    with torch.inference_mode():
        found = scene.computed(make_backend)
    tolerance = ALL_DTYPES[dtype]
    torch.testing.assert_close(found.double(), scene.expected(), rtol=tolerance, atol=4 * tolerance)


@given(layout=layouts())
@settings(max_examples=30, deadline=None)
def test_all_leave_the_same_cache(layout: Layout) -> None:
    """Only the slots of the new rows change, to exactly their keys and values."""
    scenes = [Scene(layout, torch.bfloat16) for _ in BACKENDS]
    before = [tensor.clone() for layer in range(NUM_LAYERS) for tensor in scenes[0].cache.layer(layer)]
    for scene, (make_backend, _) in zip(scenes, BACKENDS.values(), strict=True):
        scene.computed(make_backend)
    slots = scenes[0].inputs.slots
    written = [x[layer] for layer in range(NUM_LAYERS) for x in (scenes[0].k, scenes[0].v)]
    for scene in scenes:
        after = [tensor for layer in range(NUM_LAYERS) for tensor in scene.cache.layer(layer)]
        for old, new, rows in zip(before, after, written, strict=True):
            old_slots = old.flatten(0, 1).clone()
            old_slots[slots] = rows
            assert torch.equal(new.flatten(0, 1), old_slots)


def test_window_of_a_layer() -> None:
    windows = LayerWindows((None, 8, None))
    assert [windows.of(layer) for layer in range(3)] == [0, 8, 0]
    assert windows.distinct == {0, 8}
    assert (LayerWindows().of(5), LayerWindows().distinct) == (0, {0})
