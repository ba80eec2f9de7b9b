"""The kernels for CPUs against the same formulas in float64, on one thread and on a team."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.native import load_kernels
from engine.native.kernels import Kernels

CPU = torch.device("cpu")
HEAD_DIM = 24
TOLERANCE = 2**-7  # one rounding to bfloat16, and one of what goes in


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "team"])
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    threads = torch.get_num_threads()
    torch.set_num_threads(request.param)
    loaded = load_kernels(head_dim=HEAD_DIM, dtype=torch.bfloat16, device=CPU)
    assert loaded is not None
    yield loaded
    torch.set_num_threads(threads)


def draw(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).bfloat16()


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


ROWS = st.sampled_from([1, 2, 3, 17, 130])
SIZES = st.sampled_from([2, 24, 576, 1000])


@given(rows=ROWS, size=SIZES, seed=st.integers(0, 99), has_delta=st.booleans(), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40, deadline=None)
def test_norm_of_the_sum(kernels: Kernels, rows: int, size: int, seed: int, has_delta: bool, scale: float) -> None:
    hidden, delta, weight = draw(seed, rows, size, scale=scale), draw(seed + 1, rows, size), draw(seed + 2, size)
    before = hidden.clone()
    total, normed = kernels.add_norm(hidden, delta if has_delta else None, weight, 1e-5)
    assert torch.equal(hidden, before)
    assert torch.equal(total, hidden + delta if has_delta else hidden)
    assert_close(normed, norm(total, weight, 1e-5))


@given(rows=ROWS, size=SIZES, seed=st.integers(0, 99), scale=st.sampled_from([0.1, 1.0, 30.0]))
@settings(max_examples=40, deadline=None)
def test_gate(kernels: Kernels, rows: int, size: int, seed: int, scale: float) -> None:
    both = draw(seed, rows, 2 * size, scale=scale)
    gate, up = both.double().chunk(2, -1)
    torch.testing.assert_close(
        kernels.gate(both).double(), gate * gate.sigmoid() * up, rtol=TOLERANCE, atol=1e-30
    )  # fmt: skip


@given(
    rows=ROWS, heads=st.sampled_from([(1, 1), (4, 2), (9, 3)]), seed=st.integers(0, 99), has_norms=st.booleans()
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_rotation(kernels: Kernels, rows: int, heads: tuple[int, int], seed: int, has_norms: bool) -> None:
    num_heads, num_kv_heads = heads
    x = draw(seed, rows, num_heads + 2 * num_kv_heads, HEAD_DIM)
    angles = torch.rand(rows, HEAD_DIM // 2, generator=torch.Generator().manual_seed(seed)) * 2 * math.pi
    cos = torch.cat((angles.cos(), angles.cos()), -1).bfloat16()
    sin = torch.cat((-angles.sin(), angles.sin()), -1).bfloat16()
    weights = (draw(seed + 1, HEAD_DIM), draw(seed + 2, HEAD_DIM)) if has_norms else (None, None)
    expected = x.double()
    turned = num_heads + num_kv_heads
    for part, weight in zip((slice(num_heads), slice(num_heads, turned)), weights, strict=True):
        if weight is not None:
            expected[:, part] = norm(expected[:, part], weight, 1e-6).bfloat16().double()
    q_and_k = expected[:, :turned]
    half = torch.cat((q_and_k[..., HEAD_DIM // 2 :], q_and_k[..., : HEAD_DIM // 2]), -1)
    expected[:, :turned] = q_and_k * cos.double().unsqueeze(1) + half * sin.double().unsqueeze(1)
    kernels.rotate(
        x, cos, sin, num_heads=num_heads, num_kv_heads=num_kv_heads, q_norm=weights[0], k_norm=weights[1], eps=1e-6
    )
    torch.testing.assert_close(x.double(), expected, rtol=2 * TOLERANCE, atol=2 * TOLERANCE)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_a_number_stays_visible(kernels: Kernels, poison: float) -> None:
    """A row that broke must not come out as if it were sound; its neighbours must."""
    hidden, weight = draw(1, 3, 64), draw(2, 64)
    hidden[1, 5] = poison
    _, normed = kernels.add_norm(hidden, None, weight, 1e-5)
    gated = kernels.gate(hidden)
    for out in (normed, gated):
        assert not out[1].isfinite().all()
        assert out[0].isfinite().all()
        assert out[2].isfinite().all()


def test_attention_shows_what_is_not_a_number(kernels: Kernels) -> None:
    q, k, v = draw(1, 2, 4, HEAD_DIM), draw(2, 2, 2, HEAD_DIM), draw(3, 2, 2, HEAD_DIM)
    k[1] = math.nan
    keys, values = torch.zeros(2, 3, 16, 2, HEAD_DIM, dtype=torch.bfloat16)
    attend = kernels.attention(
        slots=torch.tensor([16, 32]), tables=torch.tensor([[1], [2]]), lengths=torch.tensor([1, 1]), block_size=16,
        num_kv_heads=2,
    )  # fmt: skip
    out = attend(q, k, v, keys, values, 0)
    assert out[0].isfinite().all()
    assert out[1].isnan().all()


def test_only_bfloat16_on_a_cpu_has_kernels() -> None:
    assert load_kernels(head_dim=HEAD_DIM, dtype=torch.float32, device=CPU) is None
    assert load_kernels(head_dim=HEAD_DIM, dtype=torch.bfloat16, device=torch.device("meta")) is None
    assert load_kernels(head_dim=7, dtype=torch.bfloat16, device=CPU) is None
