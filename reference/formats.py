"""Block formats: codes and scales of a tensor, and the values that they stand for.

Every format has `quantise_X` (codes and scales as they are stored), and `round_X`, which is
quantise and then read back: the values that arithmetic in this format really sees. A block with a
value that is not finite reads back as NaN, never as plausible numbers. Blocks lie along the last
dimension. Divisions by scales are float32, as the formats declare.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from reference.arguments import refuse
from reference.grids import (
    E2M1_MAX,
    E4M3_MAX,
    INT4_MAX,
    decode_e2m1,
    decode_e8m0,
    encode_e2m1,
    encode_e8m0,
    encode_int4,
    pack_nibbles,
    round_e4m3,
    unpack_nibbles,
)

# Least amax of a float32 scale, so that it stays a normal number; zeros read back as zeros.
SMALLEST_AMAX = 2.0**-100


class Quantised(NamedTuple):
    """Codes and scales as they are stored."""

    codes: Tensor
    scales: Tensor


def blocks_of(x: Tensor, block: int | None) -> Tensor:
    """float32 [..., C / block, block]; None is one block a row.

    Raises: ValueError: the last dimension is no multiple of the block.
    """
    size = x.shape[-1] if block is None else block
    if size < 1 or x.shape[-1] % size:
        refuse("block", f"{block} for {x.shape[-1]} channels", "a divisor of the channels")
    return x.float().reshape(*x.shape[:-1], -1, size)


def quantise_fp8(x: Tensor, *, block: int | None, scale: str = "fp32") -> Quantised:
    """e4m3 codes (float32 values on the grid) [..., C], scales [..., C / block].

    `scale`: "fp32" is amax / 448; "e8m0" is the next power of two not below it (V4's kv rows in
    blocks of 64, its activations in blocks of 128).
    """
    parts = blocks_of(x, block)
    scales = _scales(parts, E4M3_MAX, scale)
    return Quantised(round_e4m3(parts / scales[..., None]).flatten(-2), scales)


def round_fp8(x: Tensor, *, block: int | None, scale: str = "fp32") -> Tensor:
    """Values of `quantise_fp8`, float32."""
    return _scaled(*quantise_fp8(x, block=block, scale=scale))


def round_fp8_tiles(weight: Tensor, *, tile: int = 128) -> Tensor:
    """A weight [N, K] in e4m3 with one power-of-two scale for each tile x tile square (V4)."""
    out = torch.empty_like(weight, dtype=torch.float32)
    for row in range(0, weight.shape[0], tile):
        for column in range(0, weight.shape[1], tile):
            square = weight[row : row + tile, column : column + tile]
            values = round_fp8(square.reshape(1, -1), block=None, scale="e8m0")
            out[row : row + tile, column : column + tile] = values.view(square.shape)
    return out


def quantise_mxfp4(x: Tensor, *, block: int = 32) -> Quantised:
    """MXFP4 as DeepSeek-V4 stores it: uint8 [..., C / 2] and e8m0 bytes [..., C / block].

    The scale is the next power of two not below amax / 6, so that nothing saturates.
    """
    parts = blocks_of(x, block)
    scale_bytes = encode_e8m0(_over(parts.abs().amax(-1).double(), E2M1_MAX), rule="up")
    scaled = parts / decode_e8m0(scale_bytes)[..., None]
    return Quantised(pack_nibbles(encode_e2m1(scaled.nan_to_num()).flatten(-2)), scale_bytes)


def dequantise_mxfp4(packed: Tensor, scale_bytes: Tensor) -> Tensor:
    """float32 [..., C] of packed codes [..., C / 2] and e8m0 bytes [..., C / block]."""
    return _scaled(decode_e2m1(unpack_nibbles(packed)), decode_e8m0(scale_bytes))


def round_mxfp4(x: Tensor, *, block: int = 32) -> Tensor:
    """Values of `quantise_mxfp4`, float32."""
    return dequantise_mxfp4(*quantise_mxfp4(x, block=block))


class QuantisedNvfp4(NamedTuple):
    """uint8 [..., C / 2], e4m3 scales (as float32) [..., C / 16], one float32 for the tensor."""

    packed: Tensor
    scales: Tensor
    tensor_scale: Tensor


def quantise_nvfp4(x: Tensor, *, block: int = 16) -> QuantisedNvfp4:
    """NVFP4: value = code * e4m3 scale of the block * float32 scale of the tensor.

    The tensor's scale is amax / (6 * 448), so that the largest block's scale is 448. A block whose
    scale rounds to zero holds zeros. A value that is not finite makes its block NaN.
    """
    parts = blocks_of(x, block)
    amax = parts.abs().amax(-1)
    largest = torch.where(amax.isfinite(), amax, 0.0).max().clamp(min=SMALLEST_AMAX)
    tensor_scale = _over(largest, E2M1_MAX * E4M3_MAX)
    scales = round_e4m3(_over(amax, E2M1_MAX) / tensor_scale)
    scales = torch.where(amax.isfinite(), scales, torch.nan)
    full = (scales * tensor_scale)[..., None]
    scaled = torch.where(full > 0, parts / full, 0.0)
    return QuantisedNvfp4(pack_nibbles(encode_e2m1(scaled).flatten(-2)), scales, tensor_scale)


def dequantise_nvfp4(packed: Tensor, scales: Tensor, tensor_scale: Tensor) -> Tensor:
    """float32 [..., C]; `scales` may be float8_e4m3fn as stored, or float32."""
    return _scaled(decode_e2m1(unpack_nibbles(packed)), scales.float() * tensor_scale)


def round_nvfp4(x: Tensor, *, block: int = 16) -> Tensor:
    """Values of `quantise_nvfp4`, float32."""
    return dequantise_nvfp4(*quantise_nvfp4(x, block=block))


def quantise_int4(x: Tensor, *, block: int | None) -> Quantised:
    """int8 codes -7 .. 7 [..., C] and float32 scales amax / 7 [..., C / block]."""
    parts = blocks_of(x, block)
    scales = _scales(parts, INT4_MAX, "fp32")
    return Quantised(encode_int4((parts / scales[..., None]).nan_to_num()).flatten(-2), scales)


def round_int4(x: Tensor, *, block: int | None) -> Tensor:
    """Values of `quantise_int4`, float32."""
    return _scaled(*quantise_int4(x, block=block))


def _scaled(codes: Tensor, scales: Tensor) -> Tensor:
    """Each block of the codes times its scale; a scale belongs to an equal share of the row."""
    parts = blocks_of(codes, codes.shape[-1] // scales.shape[-1])
    return (parts * scales[..., None]).flatten(-2)


def _amax(parts: Tensor) -> Tensor:
    """Largest magnitude of each block; NaN where the block is not finite."""
    amax = parts.abs().amax(-1)
    return torch.where(amax.isfinite(), amax.clamp(min=SMALLEST_AMAX), torch.nan)


def _over(x: Tensor, number: float) -> Tensor:
    """Divide as IEEE does: by a Python number, CUDA multiplies with the rounded reciprocal."""
    return x / torch.full_like(x, number)


def _scales(parts: Tensor, limit: float, kind: str) -> Tensor:
    scales = _over(_amax(parts), limit)
    if kind == "e8m0":
        return decode_e8m0(encode_e8m0(scales, rule="up"))
    if kind != "fp32":
        refuse("scale", kind, "'fp32' or 'e8m0'")
    return scales
