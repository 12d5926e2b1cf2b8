"""Rounding to bf16 inside kernels, compiled and interpreted.

Two traps of the interpreter (triton 3.9.0), each pinned by a test: a cast from fp32 to bf16 cuts
the low bits off instead of rounding, and `tl.dot` of bf16 operands is wrong by orders of magnitude.
So an interpreted kernel rounds by hand and keeps the bf16 values in fp32, whose products are exact.
"""

import triton
import triton.language as tl


@triton.jit
def to_bf16(x, EMULATE: tl.constexpr):
    """Nearest bf16 value, ties to even; bf16, or fp32 with the same values where emulated."""
    x = x.to(tl.float32)
    if EMULATE:
        bits = x.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        return tl.where(x == x, rounded.to(tl.float32, bitcast=True), x)
    else:
        return x.to(tl.bfloat16)


@triton.jit
def e2m1(code):
    """fp32 value of 4-bit codes 0 .. 15 (int32)."""
    size = code & 7
    mantissa, exponent = size & 1, size >> 1
    small = 0.5 * mantissa.to(tl.float32)
    bits = ((exponent + 126) << 23) | (mantissa << 22)
    large = bits.to(tl.float32, bitcast=True)
    value = tl.where(exponent == 0, small, large)
    return tl.where(code >= 8, -value, value)


@triton.jit
def e8m0(raw):
    """fp32 value of bytes (int32): 2^(b - 127), NaN for 255."""
    bits = tl.where(raw == 0, 0x00400000, tl.where(raw == 255, 0x7FC00000, raw << 23))
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def e4m3(raw):
    """fp32 value of bytes (int32) in e4m3fn: no infinities, 127 and 255 are NaN."""
    size = raw & 127
    mantissa, exponent = size & 7, size >> 3
    small = mantissa.to(tl.float32) * 0.001953125  # 2^-9
    bits = ((exponent + 120) << 23) | (mantissa << 20)
    value = tl.where(exponent == 0, small, bits.to(tl.float32, bitcast=True))
    value = tl.where(size == 127, float("nan"), value)
    return tl.where(raw >= 128, -value, value)


@triton.jit
def round_e4m3(x):
    """Nearest e4m3 value of fp32 within +-448, ties to even; NaN stays NaN."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = tl.maximum((bits >> 23) & 255, 121)  # below 2^-6 the grid is that of 2^-6
    step = ((exponent - 3) << 23).to(tl.float32, bitcast=True)
    # Adding and taking away 1.5 * 2^23 rounds to a whole number, ties to even.
    return ((x / step + 12582912.0) - 12582912.0) * step
