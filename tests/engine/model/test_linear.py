"""Both forms of a product against a product in float64."""

import pytest
import torch

from engine.model.linear import DenseLinear, PackedLinear, make_linear

ROWS = (1, 2, 3, 16, 17, 100)


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_product(rows: int, has_bias: bool, dtype: torch.dtype) -> None:
    weight, x = draw(48, 40, seed=1).to(dtype), draw(rows, 40, seed=2).to(dtype)
    bias = draw(48, seed=3).to(dtype) if has_bias else None
    linear = make_linear(weight.clone(), bias)
    expected = x.double() @ weight.double().T + (bias.double() if bias is not None else 0)
    with torch.inference_mode():
        found = linear(x)
    assert found.shape == (rows, 48)
    assert found.dtype is dtype
    # One rounding of the result; sums are kept in float32 by both forms.
    torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-2 if has_bias else 1e-5)


@pytest.mark.parametrize("rows", ROWS)
def test_a_packed_product_is_the_dense_one_to_the_bit_or_nearly(rows: int) -> None:
    weight, x = draw(48, 40, seed=4).bfloat16(), draw(rows, 40, seed=5).bfloat16()
    linear = make_linear(weight.clone())
    if not isinstance(linear, PackedLinear):
        pytest.skip("this CPU does not multiply bfloat16 by itself")
    with torch.inference_mode():
        torch.testing.assert_close(linear(x), DenseLinear(weight, None)(x), rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("min_rows", [1, 2])
def test_rows_added_for_the_matrix_unit_do_not_come_out(min_rows: int) -> None:
    weight, x = draw(8, 16, seed=6).bfloat16(), draw(1, 16, seed=7).bfloat16()
    packed = make_linear(weight.clone())
    if not isinstance(packed, PackedLinear):
        pytest.skip("this CPU does not multiply bfloat16 by itself")
    linear = PackedLinear(packed.packed, None, min_rows)
    with torch.inference_mode():
        assert linear(x).shape == (1, 8)
        torch.testing.assert_close(linear(x), linear(x.expand(3, -1).contiguous())[:1])


def test_other_dtypes_stay_plain() -> None:
    assert isinstance(make_linear(draw(4, 4, seed=8)), DenseLinear)
    assert isinstance(make_linear(draw(4, 4, seed=8).half()), DenseLinear)
