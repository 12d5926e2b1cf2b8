"""Number grids: e4m3, e2m1 (fp4), e8m0 (powers of two), bf16, int4. Rounding really rounds.

A grid value near x is found by dividing by the distance of the grid's neighbours there (a power of
two, so exactly), rounding half to even, and multiplying back. All of it in float64: every float32
and every value of these grids is exact in it.
"""

import torch
from torch import Tensor

from reference.arguments import refuse

E4M3_MAX, E2M1_MAX, INT4_MAX = 448.0, 6.0, 7.0
# Codes 0 .. 7; bit 3 is the sign.
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E8M0_BIAS, E8M0_NAN = 127, 255


def _round_to(x: Tensor, *, mantissa_bits: int, least_exponent: int) -> Tensor:
    """Nearest value with so many bits after the leading one; float64, no upper end, no Inf."""
    x = x.double()
    exponent = torch.frexp(x).exponent - 1  # of the leading bit: frexp's fraction is below 1
    step = torch.ldexp(torch.ones_like(x), exponent.clamp(min=least_exponent) - mantissa_bits)
    rounded = torch.round(x / step) * step
    return torch.where(x.isfinite(), rounded, x)


def round_e4m3(x: Tensor, *, overflow: str = "saturate") -> Tensor:
    """Nearest e4m3 (fn) value, ties to even, denormals kept; float32, like x.

    Args:
        x: any shape, float.
        overflow: what becomes of values beyond 448 and of Inf: "saturate" gives +-448 (torch >=
            2.12, CUDA's satfinite), "nan" gives NaN where rounding leaves the range. NaN is NaN.

    Raises: ValueError: another `overflow`.
    """
    if overflow not in ("saturate", "nan"):
        refuse("overflow", overflow, "'saturate' or 'nan'")
    y = _round_to(x, mantissa_bits=3, least_exponent=-6)
    if overflow == "saturate":
        return y.clamp(-E4M3_MAX, E4M3_MAX).float()
    return torch.where(y.abs() > E4M3_MAX, torch.nan, y).float()


def round_e2m1(x: Tensor) -> Tensor:
    """Nearest fp4 value, ties to the even code, saturating at +-6; NaN stays NaN; float32."""
    y = _round_to(x, mantissa_bits=1, least_exponent=0)
    return y.clamp(-E2M1_MAX, E2M1_MAX).float()


def round_bf16(x: Tensor) -> Tensor:
    """Nearest bf16 value, ties to even, beyond the largest Inf; as float32."""
    y = _round_to(x, mantissa_bits=7, least_exponent=-126)
    largest = float.fromhex("0x1.fep127")
    infinite = torch.copysign(torch.full_like(y, torch.inf), y)
    return torch.where(y.abs() > largest, infinite, y).float()


def encode_e2m1(x: Tensor) -> Tensor:
    """Codes 0 .. 15 of the nearest fp4 values, uint8; fp4 has no code for NaN.

    Raises: ValueError: x has a NaN.
    """
    if bool(x.isnan().any()):
        refuse("x", "a NaN", "numbers: fp4 has no NaN, its block's scale must carry it")
    y = round_e2m1(x)
    table = torch.tensor(E2M1_VALUES, device=y.device)
    code = (y.abs()[..., None] == table).int().argmax(-1)
    return (code + 8 * torch.signbit(y)).to(torch.uint8)


def decode_e2m1(codes: Tensor) -> Tensor:
    """Values of codes 0 .. 15, float32."""
    table = torch.tensor([*E2M1_VALUES, *(-v for v in E2M1_VALUES)], device=codes.device)
    return table[codes.long()]


def pack_nibbles(codes: Tensor) -> Tensor:
    """Two 4-bit codes a byte along the last dimension, the even index in the low half; uint8."""
    if codes.shape[-1] % 2:
        refuse("codes", f"{codes.shape[-1]} columns", "an even number")
    return codes[..., 0::2] + 16 * codes[..., 1::2]


def unpack_nibbles(packed: Tensor) -> Tensor:
    """Codes of `pack_nibbles`; the bytes may be int8 or uint8."""
    raw = packed.view(torch.uint8)
    return torch.stack((raw % 16, raw // 16), dim=-1).flatten(-2)


def encode_int4(x: Tensor) -> Tensor:
    """Nearest of -7 .. 7, ties to even, saturating; int8 (the code -8 is not used)."""
    if bool(x.isnan().any()):
        refuse("x", "a NaN", "numbers: int4 has no NaN, its scale must carry it")
    return torch.round(x).clamp(-INT4_MAX, INT4_MAX).to(torch.int8)


def encode_e8m0(x: Tensor, *, rule: str) -> Tensor:
    """Bytes b that stand for 2^(b - 127), 255 for NaN; the sign of x is not kept; uint8.

    Args:
        x: any shape. Zero and whatever is too small become byte 0; too large, Inf, NaN become 255.
        rule: "up" is the next power of two not below |x| (V4's scales), "down" the next not
            above, "nearest" is what torch's own cast does with normal numbers (1.5 goes up).
    """
    fraction, exponent = torch.frexp(x.double().abs())  # x = fraction * 2^exponent, in [.5, 1)
    if rule == "up":
        power = exponent - (fraction == 0.5).int()
    elif rule == "down":
        power = exponent - 1
    elif rule == "nearest":
        power = exponent - (fraction < 0.75).int()
    else:
        refuse("rule", rule, "'up', 'down' or 'nearest'")
    byte = torch.where(x == 0, 0, (power + E8M0_BIAS).clamp(min=0))
    return torch.where(~x.isfinite() | (byte > 254), E8M0_NAN, byte).to(torch.uint8)


def decode_e8m0(bytes_: Tensor) -> Tensor:
    """2^(b - 127), NaN for 255; float32."""
    power = torch.ldexp(
        torch.ones(bytes_.shape, dtype=torch.float64, device=bytes_.device),
        bytes_.int() - E8M0_BIAS,
    )
    return torch.where(bytes_ == E8M0_NAN, torch.nan, power).float()
