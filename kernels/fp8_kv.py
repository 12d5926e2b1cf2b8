"""Patch `fp8_kv`: KV rows in e4m3 with block scales, as DeepSeek-V4 keeps them.

Of each window row and each compressed entry, the channels that are not rotated are rounded to e4m3
with one power-of-two scale (2^n >= amax / 448) a block of 64, or the largest of 32 and 16 that fits
the head; the rotated tail is rounded to bf16. The engine's pools stay fp32 and hold the rounded
values: what attention reads is what packed rows would give it, the memory saved is not.

A block with a value that is not finite reads back as NaN. On CUDA rounding is a Triton kernel
(kernels/gpu/fp8_kv.py); on the CPU its arithmetic in torch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.checks import check_float, check_rope_dim, check_shape, refuse
from kernels.index_keys import SMALLEST_AMAX
from kernels.patch import Binding, Installation, PatchUnsupported, kernel_patch

E4M3_MAX = 448.0
BLOCKS = (64, 32, 16)


def block_of(head_dim: int, rope_dim: int) -> int:
    """Channels of one scale.

    Raises: PatchUnsupported: none of the blocks divides the channels that are not rotated.
    """
    plain = head_dim - rope_dim
    found = next((block for block in BLOCKS if plain > 0 and plain % block == 0), 0)
    if not found:
        raise PatchUnsupported(
            "fp8_kv",
            f"{head_dim} channels with {rope_dim} rotated; accepted: a multiple of {BLOCKS[-1]}"
            " that are not rotated",
        )
    return found


def check_rows(rows: Tensor, *, rope_dim: int, block: int) -> None:
    """Refuse what the kernel cannot do; shared by both forms of it."""
    check_shape("rows", rows, -1, -1)
    check_float("rows", rows)
    check_rope_dim(rope_dim, rows.shape[1])
    if block < 1 or (rows.shape[1] - rope_dim) % block or rows.shape[1] == rope_dim:
        refuse("block", block, f"a divisor of {rows.shape[1] - rope_dim} channels")


def round_rows(rows: Tensor, *, rope_dim: int, block: int) -> Tensor:
    """The kernel's arithmetic on the CPU: rows [N, D] as they are read back, in their dtype."""
    check_rows(rows, rope_dim=rope_dim, block=block)
    plain = rows.shape[1] - rope_dim
    groups = rows[:, :plain].float().unflatten(1, (-1, block))
    exponent, finite = block_exponents(groups)
    scale = torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent)
    made = (groups / scale).to(torch.float8_e4m3fn).float() * scale
    made = torch.where(finite, made, float("nan")).flatten(1)
    return torch.cat((made, rows[:, plain:].bfloat16().float()), dim=1).to(rows.dtype)


def block_exponents(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Exponents n of the scales 2^n, and whether the block is finite; [..., blocks, 1] both."""
    amax = groups.abs().amax(-1, keepdim=True)
    finite = amax.isfinite()
    target = torch.where(finite, amax, 1.0).clamp(min=SMALLEST_AMAX)
    fraction, exponent = torch.frexp(target / torch.full_like(target, E4M3_MAX))
    return exponent - (fraction == 0.5).int(), finite  # ceil(log2), exact powers stay


def _check(binding: Binding) -> int:
    settings = binding.settings
    if not settings.head_dim:
        raise PatchUnsupported("fp8_kv", "head_dim is not known; accepted: Settings with head_dim")
    return block_of(settings.head_dim, settings.rope_dim)


def _install(into: Installation) -> None:
    if into.on_gpu:
        from kernels.gpu.fp8_kv import round_rows as run
    else:
        run = round_rows
    rope_dim, block = into.binding.settings.rope_dim, into.parsed

    def rounding(store: Callable[..., None]) -> Callable[..., None]:
        def stored(pool: Tensor, rows: Tensor, *more: Any) -> None:
            into.count()
            store(pool, run(rows, rope_dim=rope_dim, block=block), *more)

        return stored

    for name in ("store_window", "store_entries"):
        into.functions[name] = rounding(into.functions[name])


PATCH = kernel_patch(
    "fp8_kv",
    phase="both",
    summary="KV rows in e4m3 with block scales",
    source="DeepSeek-V4: kv rows round-tripped in fp8, blocks of 64, rotated channels in bf16",
    check=_check,
    install=_install,
)
