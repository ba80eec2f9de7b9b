"""What the kernels are written in: bfloat16 as 16 bits, addresses as arrays, an exponential that vectorises.

Everything here is compiled by numba and inlined; numba's types know no pointers from integers and no bit casts, so the
few LLVM casts that are needed are given names.
"""

from typing import Any

from numba import carray, njit, types
from numba.extending import intrinsic

# Sums may be reordered, or no loop would vectorise; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

BFLOAT16_BYTES, FLOAT32_BYTES, INT64_BYTES = 2, 4, 8

_ROUND_DOWN = 0x7FFF
_QUIET_NAN = 0x7FC0


def _llvm_cast(target: Any, instruction: str) -> Any:
    """A function inside the kernels that is one cast of LLVM."""

    @intrinsic
    def cast(_context: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(arguments[0], context.get_value_type(signature.return_type))

        return target(value), codegen

    return cast


float_of_bits = _llvm_cast(types.float32, "bitcast")
bits_of_float = _llvm_cast(types.uint32, "bitcast")
_pointer_u16 = _llvm_cast(types.CPointer(types.uint16), "inttoptr")
_pointer_f32 = _llvm_cast(types.CPointer(types.float32), "inttoptr")
_pointer_i64 = _llvm_cast(types.CPointer(types.int64), "inttoptr")


@njit(inline="always")
def u16_at(address, count):
    """`count` bfloat16 at an address."""
    return carray(_pointer_u16(address), (count,))


@njit(inline="always")
def f32_at(address, count):
    """`count` float32 at an address."""
    return carray(_pointer_f32(address), (count,))


@njit(inline="always")
def i64_at(address, count):
    """`count` int64 at an address."""
    return carray(_pointer_i64(address), (count,))


@njit(fastmath=FASTMATH, error_model="numpy")
def widen(half):
    """The bfloat16 of these 16 bits as float32: it is the upper half of one."""
    return float_of_bits(types.uint32(types.uint32(half) << types.uint32(16)))


@njit(fastmath=FASTMATH, error_model="numpy")
def narrow(value):
    """The nearest bfloat16, ties to even; NaN stays NaN."""
    bits = bits_of_float(types.float32(value))
    rounded = types.uint32(bits + types.uint32(_ROUND_DOWN) + ((bits >> types.uint32(16)) & types.uint32(1)))
    upper = types.uint16(rounded >> types.uint32(16))
    return upper if value == value else types.uint16(_QUIET_NAN)


@njit(fastmath={"contract", "nsz"})
def exponential(x):
    """exp(x) in float32 for x <= 0, within 3e-7 of it relatively; 0 below -87.

    2^k times the Taylor series up to x^6 on [-ln 2 / 2, ln 2 / 2]; ln 2 in two parts after Cody and Waite.
    """
    clipped = max(x, types.float32(-87.0))
    whole = types.int32(clipped * types.float32(1.4426950408889634) - types.float32(0.5))
    k = types.float32(whole)
    rest = clipped - k * types.float32(0.693359375) + k * types.float32(2.12194440e-4)
    series = types.float32(1.0 / 720.0)
    series = series * rest + types.float32(1.0 / 120.0)
    series = series * rest + types.float32(1.0 / 24.0)
    series = series * rest + types.float32(1.0 / 6.0)
    series = series * rest + types.float32(0.5)
    series = series * rest + types.float32(1.0)
    series = series * rest + types.float32(1.0)
    power = float_of_bits(types.uint32(types.uint32(whole + types.int32(127)) << types.uint32(23)))
    return types.float32(0.0) if x < types.float32(-87.0) else series * power
