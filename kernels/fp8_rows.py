"""KV rows packed in e4m3: what patch `fp8_kv` declares, as bytes that a kernel can read.

| part | of a row of D channels, R of them rotated |
| --- | --- |
| codes | e4m3 bytes of the D - R channels that are not rotated |
| scales | one e8m0 byte a block of them |
| tail | the R rotated channels in bf16 |
"""

from typing import NamedTuple

import torch
from torch import Tensor

from kernels.checks import check_contiguous, check_shape, refuse
from kernels.fp8_kv import block_exponents
from kernels.index_keys import E8M0_BIAS, E8M0_NAN


class Fp8Rows(NamedTuple):
    """A paged pool of packed rows.

    Attributes:
        codes: uint8 [P, slots, D - R].
        scales: uint8 [P, slots, (D - R) / block].
        tail: bf16 [P, slots, R].
    """

    codes: Tensor
    scales: Tensor
    tail: Tensor

    @property
    def dim(self) -> int:
        """D."""
        return self.codes.shape[2] + self.tail.shape[2]

    @property
    def block(self) -> int:
        """Channels of one scale."""
        return self.codes.shape[2] // self.scales.shape[2]

    def check(self, argument: str) -> None:
        """Refuse parts that do not belong together."""
        for part, dtype in ((self.codes, torch.uint8), (self.scales, torch.uint8),
                            (self.tail, torch.bfloat16)):  # fmt: skip
            if part.dtype is not dtype or part.device != self.codes.device:
                refuse(argument, f"{part.dtype} on {part.device}", f"{dtype}, all on one device")
            check_shape(argument, part, *self.codes.shape[:2], -1)
            check_contiguous(argument, part)
        if not self.scales.shape[2] or self.codes.shape[2] % self.scales.shape[2]:
            refuse(
                argument, f"{self.scales.shape[2]} scales", f"a divisor of {self.codes.shape[2]}"
            )


def pack(rows: Tensor, *, rope_dim: int, block: int) -> Fp8Rows:
    """Round rows [P, slots, D] and keep the bytes; a block that is not finite gets a NaN scale."""
    plain = rows.shape[2] - rope_dim
    groups = rows[..., :plain].float().unflatten(2, (-1, block))
    exponent, finite = block_exponents(groups)
    scaled = groups / torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent)
    codes = scaled.nan_to_num().to(torch.float8_e4m3fn).view(torch.uint8).flatten(2)
    scales = torch.where(finite, exponent + E8M0_BIAS, E8M0_NAN)[..., 0].to(torch.uint8)
    tail = rows[..., plain:].bfloat16().contiguous()  # of bf16 rows it would be a view
    return Fp8Rows(codes, scales, tail)


def unpack(pool: Fp8Rows) -> Tensor:
    """fp32 [P, slots, D]."""
    values = pool.codes.view(torch.float8_e4m3fn).float().unflatten(2, (-1, pool.block))
    power = torch.ldexp(
        torch.ones(pool.scales.shape, device=pool.scales.device), pool.scales.int() - E8M0_BIAS
    )
    power = torch.where(pool.scales == E8M0_NAN, float("nan"), power)
    return torch.cat(((values * power[..., None]).flatten(2), pool.tail.float()), dim=2)
