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
