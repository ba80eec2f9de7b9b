"""What holds for the Triton kernels on a card and in Triton's interpreter alike; callers choose device and dtype."""

import math

import torch
from torch import Tensor

from engine.attention.backend import LayerWindows
from engine.attention.triton_paged import Card, Tiles, TritonPaged
from engine.cache.kv_cache import KVCache
from engine.model.layer_ops import LayerOps
from tests.fakes.attention_scene import Layout, Scene

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
SMALL = (Tiles(16, 16, 4, 1),)
"""Tiles that make tiles of tiny layouts: several of each, and parts of one."""


def small_backend(windows: LayerWindows, *, num_multiprocessors: int) -> TritonPaged:
    """Splits decode rows into more parts the more multiprocessors there are."""
    return TritonPaged(Card(num_multiprocessors, 2**20), windows, chunk_tiles=SMALL, decode_tiles=SMALL)


def check_attention(layout: Layout, dtype: torch.dtype, device: torch.device, *, num_multiprocessors: int) -> None:
    """The definition, and nothing of what stands in unused slots; the cache changes in the slots of new rows alone."""
    scene = Scene(layout, dtype, device=device, garbage=math.nan)
    before = [tensor.clone() for layer in range(2) for tensor in scene.cache.layer(layer)]

    def make(windows: LayerWindows) -> TritonPaged:
        return small_backend(windows, num_multiprocessors=num_multiprocessors)

    found = scene.computed(make)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found.double(), scene.expected(), rtol=tolerance, atol=4 * tolerance)
    _check_cache(scene.cache, before, scene.inputs.slots, [scene.k, scene.v])


def _check_cache(cache: KVCache, before: list[Tensor], slots: Tensor, new: list[Tensor]) -> None:
    after = [tensor for layer in range(2) for tensor in cache.layer(layer)]
    written = [rows[layer] for layer in range(2) for rows in new]
    for old, found, rows in zip(before, after, written, strict=True):
        expected = old.flatten(0, 1)
        expected[slots] = rows
        torch.testing.assert_close(found.flatten(0, 1), expected, rtol=0, atol=0, equal_nan=True)


def check_ops(
    ops: LayerOps, dtype: torch.dtype, device: torch.device, *, rows: int, has_delta: bool, has_norms: bool, seed: int
) -> None:
    """Every step of a layer against its formula in float64."""
    shape = ops.architecture  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(device=device, dtype=dtype)

    tolerance = 2 * TOLERANCES[dtype]

    def close(found: Tensor, expected: Tensor) -> None:
        assert found.dtype is dtype
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)

    hidden, delta, weight = draw(rows, shape.hidden_size), draw(rows, shape.hidden_size), draw(shape.hidden_size)
    kept = hidden.clone()
    total, normed = ops.add_norm(hidden, delta if has_delta else None, weight)
    assert torch.equal(hidden, kept)
    assert torch.equal(total, hidden + delta if has_delta else hidden)
    close(normed, _norm(total, weight, shape.rms_norm_eps))

    turned, half = shape.num_heads + shape.num_kv_heads, shape.head_dim // 2
    heads = draw(rows, turned + shape.num_kv_heads, shape.head_dim)
    cos, sin = draw(rows, 1, half), draw(rows, 1, half)
    cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    norms = (draw(shape.head_dim), draw(shape.head_dim)) if has_norms else None
    x, values = heads[:, :turned].double(), heads[:, turned:].clone()
    if norms is not None:
        parts = x[:, : shape.num_heads], x[:, shape.num_heads :]
        x = torch.cat([_norm(part, scale, shape.rms_norm_eps) for part, scale in zip(parts, norms, strict=True)], 1)
    expected = x * cos.double() + torch.cat((x[..., half:], x[..., :half]), -1) * sin.double()
    q, k = ops.rotate(heads, (cos, sin), norms)
    close(q, expected[:, : shape.num_heads])
    close(k, expected[:, shape.num_heads :])
    assert torch.equal(heads[:, turned:], values)

    both = draw(rows, 2 * shape.intermediate_size)
    gate, up = both.double().chunk(2, -1)
    close(ops.gate(both), gate * gate.sigmoid() * up)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
