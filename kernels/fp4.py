"""Four-bit weights with block scales, as they are stored, and the product with them.

| format | a value | scale of a block | block | and |
| --- | --- | --- | --- | --- |
| mxfp4 | e2m1 | e8m0 byte, 2^n >= amax / 6 | 32 | - |
| nvfp4 | e2m1 | e4m3 | 16 | one fp32 factor a matrix, amax / (6 * 448) |

Two codes a byte, the even channel in the low half. Code times block scale is exact in bf16 in both
formats, so the product is: x rounded to bf16, times these values, summed in fp32, times the factor.
A block with a value that is not finite reads back as NaN.

Patches of routed experts round the weights once, at their first use, and keep them as they are
stored. On CUDA the product is a Triton kernel (kernels/gpu/fp4.py) that reads the packed codes; on
the CPU its arithmetic in torch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from kernels.checks import check_float, check_shape, refuse
from kernels.index_keys import E8M0_BIAS, E8M0_NAN, FP4_MAX, FP4_MIDPOINTS, SMALLEST_AMAX
from kernels.index_keys import code_values as code_values_of
from kernels.patch import Installation, Patch, PatchUnsupported, kernel_patch
from kernels.prepared import Prepared

BLOCKS = {"mxfp4": 32, "nvfp4": 16}
E4M3_MAX = 448.0


class Fp4Weights(NamedTuple):
    """Matrices [E, M, K] as they are stored.

    Attributes:
        packed: uint8 [E, M, K / 2].
        scales: uint8 (e8m0) [E, M, K / 32], or float8_e4m3fn [E, M, K / 16].
        factors: fp32 [E].
        values: fp32 [E, M, K], code times scale, without the factor; empty on CUDA.
    """

    packed: Tensor
    scales: Tensor
    factors: Tensor
    values: Tensor


def check_weights(weights: Tensor, block: int) -> None:
    """Refuse what cannot be stored."""
    check_shape("weights", weights, -1, -1, -1)
    check_float("weights", weights)
    if not weights.shape[2] or weights.shape[2] % block:
        refuse("weights", f"{weights.shape[2]} channels", f"a multiple of the block, {block}")


def encode(scaled: Tensor) -> Tensor:
    """uint8 codes of the nearest e2m1 values, ties to the even code; NaN becomes 0."""
    size = scaled.abs().nan_to_num()
    code = torch.zeros_like(size, dtype=torch.uint8)
    for index, midpoint in enumerate(FP4_MIDPOINTS):
        code += (size >= midpoint) if index % 2 else (size > midpoint)
    return code | (torch.signbit(scaled) & ~scaled.isnan()).to(torch.uint8) << 3


def decode(packed: Tensor) -> Tensor:
    """fp32 values of packed codes, twice as many channels."""
    table = torch.tensor(code_values_of("fp4"), device=packed.device)
    return table[torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).long()]


def quantise(weights: Tensor, kind: str) -> Fp4Weights:
    """Round matrices [E, M, K] to a format of this module.

    Raises: ValueError: channels that do not fit the block, or another kind.
    """
    if kind not in BLOCKS:
        refuse("kind", kind, ", ".join(BLOCKS))
    block = BLOCKS[kind]
    check_weights(weights, block)
    groups = weights.float().unflatten(2, (-1, block))
    amax = groups.abs().amax(-1)
    make = _mx_scales if kind == "mxfp4" else _nv_scales
    scales, factors = make(amax)
    full = (read_scales(scales) * factors[:, None, None])[..., None]
    scaled = torch.where(full > 0, groups / full, 0.0).flatten(2)
    code = encode(scaled)
    packed = code[..., 0::2] | code[..., 1::2] << 4
    if weights.is_cuda:
        return Fp4Weights(packed, scales, factors, scales.new_empty(0, dtype=torch.float32))
    values = (decode(packed).unflatten(2, (-1, block)) * read_scales(scales)[..., None]).flatten(2)
    return Fp4Weights(packed, scales, factors, values)


def _mx_scales(amax: Tensor) -> tuple[Tensor, Tensor]:
    finite = amax.isfinite()
    target = torch.where(finite, amax, 1.0).clamp(min=SMALLEST_AMAX)
    fraction, exponent = torch.frexp(target / torch.full_like(target, FP4_MAX))
    exponent = exponent - (fraction == 0.5).int()  # ceil(log2), exact powers stay
    scales = torch.where(finite, exponent + E8M0_BIAS, E8M0_NAN).to(torch.uint8)
    return scales, amax.new_ones(amax.shape[0])


def _nv_scales(amax: Tensor) -> tuple[Tensor, Tensor]:
    finite = amax.isfinite()
    largest = torch.where(finite, amax, 0.0).flatten(1).amax(1).clamp(min=SMALLEST_AMAX)
    factors = largest / torch.full_like(largest, FP4_MAX * E4M3_MAX)
    target = amax / torch.full_like(amax, FP4_MAX) / factors[:, None, None]
    scales = torch.where(finite, target, float("nan")).clamp(max=E4M3_MAX)
    return scales.to(torch.float8_e4m3fn), factors


def read_scales(scales: Tensor) -> Tensor:
    """fp32 values of stored scales."""
    if scales.dtype is not torch.uint8:
        return scales.float()
    power = torch.ldexp(torch.ones(scales.shape, device=scales.device), scales.int() - E8M0_BIAS)
    return torch.where(scales == E8M0_NAN, float("nan"), power)


def product(x: Tensor, stored: Fp4Weights, expert: int) -> Tensor:
    """The kernel's arithmetic on the CPU: x [N, K] times matrix `expert` transposed, [N, M]."""
    check_product(x, stored, expert)
    made = linear(x.bfloat16().float(), stored.values[expert]) * stored.factors[expert]
    return made.to(x.dtype)


def check_product(x: Tensor, stored: Fp4Weights, expert: int) -> None:
    """Refuse what the kernel cannot do; shared by both forms of it."""
    check_float("x", x, like=stored.packed)
    check_shape("x", x, -1, 2 * stored.packed.shape[2])
    if not 0 <= expert < stored.packed.shape[0]:
        refuse("expert", expert, f"0..{stored.packed.shape[0] - 1}")


def experts_patch(kind: str, *, summary: str, source: str) -> Patch:
    """Patch `KIND_experts`: the products with routed experts' weights in this format.

    Args:
        kind: a format of this module.
        summary: of the patch, in a few words.
        source: where it comes from.
    """
    name = f"{kind}_experts"

    def install(into: Installation) -> None:
        if "_expert_product" in into.functions:
            raise PatchUnsupported(name, "another format of the experts is on already")
        if into.on_gpu:
            from kernels.gpu.fp4 import product as run
        else:
            run = product
        stored = Prepared(lambda weights: quantise(weights, kind))

        def counted(x: Tensor, weights: Tensor, expert: int) -> Tensor:
            into.count()
            return run(x, stored(weights), expert)

        into.functions["_expert_product"] = counted

    return kernel_patch(name, phase="both", summary=summary, source=source, install=install)
