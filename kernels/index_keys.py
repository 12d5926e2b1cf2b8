"""Patch `index_keys`: how the indexer's keys are stored, really packed.

| format | a channel | scale | one scale for |
| --- | --- | --- | --- |
| fp32, bf16 | the float | - | - |
| fp8 | e4m3 | fp32, amax / 448 | row (default) or block of 32 |
| fp4 | e2m1, two a byte | 2^n >= amax / 6, one byte (e8m0) | row or block of 32 (default) |
| int4 | -7 .. 7, two a byte | fp32, amax / 7 | row (default) or block of 32 |

`rotate` multiplies keys and queries by the normalised Walsh-Hadamard matrix before rounding: it is
orthonormal, so without rounding it changes nothing, and it spreads an outlier over all channels.
A row (or block) with a value that is not finite reads back as NaN, never as plausible numbers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.batch import PagedBatch
from kernels.checks import check_int32, check_rate, check_real, check_shape, check_whole, refuse
from kernels.patch import Binding, Patch, PatchUnsupported

BLOCK = 32
FORMATS = ("fp32", "bf16", "fp8", "fp4", "int4")
FP8_MAX, FP4_MAX, INT4_MAX = 448.0, 6.0, 7.0
SMALLEST_AMAX = 2.0**-100  # keeps every scale a normal number; an all-zero row reads back as zero
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Between neighbours i and i + 1; a tie goes to the even code, so codes 1, 3, 5, 7 need more.
FP4_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
E8M0_BIAS, E8M0_NAN = 127, 255


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFormat:
    """One accepted value of the patch."""

    name: str
    scale: str = "none"
    rotate: bool = False

    def text(self) -> str:
        """The value as a user writes it."""
        parts = [self.name] + [self.scale] * (self.scale != "none") + ["rotate"] * self.rotate
        return ",".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStorage:
    """Paged keys of one layer.

    Attributes:
        codes: [P, slots, C]: float32, bfloat16, float8_e4m3fn with C = dim; uint8 with
            C = dim / 2 for two codes a byte, the even channel in the low half.
        scales: [P, slots, scales a row], float32 or uint8 (e8m0); None where there is none.
    """

    format: KeyFormat
    dim: int
    slots: int
    codes: Tensor
    scales: Tensor | None

    def tensors(self) -> list[Tensor]:
        """All state, each with pages first: what a transfer of pages must copy."""
        return [self.codes] if self.scales is None else [self.codes, self.scales]


def walsh_hadamard(x: Tensor) -> Tensor:
    """Multiply the last dimension (a power of two) by the normalised matrix, by butterflies."""
    dim = x.shape[-1]
    half = 1
    while half < dim:
        pairs = x.view(*x.shape[:-1], dim // (2 * half), 2, half)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack((low + high, low - high), dim=-2).flatten(-3)
        half *= 2
    norm: float = dim**-0.5
    return x * norm


class IndexKeys:
    """Allocates, writes and reads key pages in one format."""

    def __init__(self, key_format: KeyFormat) -> None:
        self.format = key_format

    def allocate(self, pages: int, slots: int, dim: int, device: str | torch.device) -> KeyStorage:
        """Zeroed storage for `slots` keys of `dim` channels a page."""
        check_whole("pages", pages, "a number of pages", least=0)
        check_whole("slots", slots, "at least 1 key a page")
        check_whole("dim", dim, "at least 1 channel")
        name = self.format.name
        if dim % (BLOCK if self.format.scale == "block" else 2 if name in ("fp4", "int4") else 1):
            refuse("dim", f"{dim} channels", f"what {self.format.text()} can pack")
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
        packed = name in ("fp4", "int4")
        codes = torch.zeros(
            (pages, slots, dim // 2 if packed else dim),
            dtype=torch.uint8 if packed else dtype[name],
            device=device,
        )
        scales = None
        if self.format.scale != "none":
            per_row = dim // BLOCK if self.format.scale == "block" else 1
            kind = torch.uint8 if name == "fp4" else torch.float32
            scales = torch.zeros((pages, slots, per_row), dtype=kind, device=device)
        return KeyStorage(format=self.format, dim=dim, slots=slots, codes=codes, scales=scales)

    def store(
        self,
        storage: KeyStorage,
        keys: Tensor,
        entry_seq: Tensor,
        entry_index: Tensor,
        m: int,
        batch: PagedBatch,
    ) -> None:
        """Write keys [N, Di] of the entries that `compress` has closed (int32 [N] each)."""
        check_shape("keys", keys, -1, storage.dim)
        check_real("keys", keys)
        check_rate(m, batch.page_size)
        check_int32("entry_seq", entry_seq, keys.shape[0])
        check_int32("entry_index", entry_index, keys.shape[0])
        check_shape("storage", storage.codes, -1, batch.page_size // m, -1)
        batch.check_pool("storage", storage.codes.shape[0])
        batch.check_entries(entry_seq, entry_index, m)
        slots = batch.entry_slots(entry_seq, entry_index, m)
        codes, scales = self.round(keys)
        flat = storage.codes.view(-1, storage.codes.shape[-1])
        if codes.dtype is torch.float8_e4m3fn:  # indexed writes of float8 are not everywhere
            flat, codes = flat.view(torch.uint8), codes.view(torch.uint8)
        flat[slots] = codes
        if storage.scales is not None and scales is not None:
            storage.scales.view(-1, storage.scales.shape[-1])[slots] = scales

    def round(self, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        """(codes, scales) of keys [N, Di], as they lie in storage."""
        keys = keys.float()
        if self.format.rotate:
            keys = walsh_hadamard(keys)
        if self.format.name == "fp32":
            return keys, None
        if self.format.name == "bf16":
            return keys.bfloat16(), None
        block = BLOCK if self.format.scale == "block" else keys.shape[1]
        groups = keys.unflatten(1, (-1, block))
        amax = groups.abs().amax(-1).clamp(min=SMALLEST_AMAX)
        if self.format.name == "fp4":
            return _round_fp4(groups, amax)
        limit = FP8_MAX if self.format.name == "fp8" else INT4_MAX
        scales = _divide(amax, limit)
        scaled = (groups / scales[..., None]).flatten(1)
        if self.format.name == "fp8":
            return scaled.to(torch.float8_e4m3fn), scales
        whole = scaled.round().clamp(-INT4_MAX, INT4_MAX).nan_to_num().to(torch.int8)
        return _pack(whole.view(torch.uint8) & 15), scales

    def read(self, storage: KeyStorage, slots: Tensor) -> Tensor:
        """fp32 [..., Di]: the keys (rotated, if so) at flat slots int64 [...]."""
        values, scales = self.read_parts(storage, slots)
        if scales is None:
            return values
        groups = values.unflatten(-1, (scales.shape[-1], -1))
        keys: Tensor = (groups * scales[..., None]).flatten(-2)
        return keys

    def read_parts(self, storage: KeyStorage, slots: Tensor) -> tuple[Tensor, Tensor | None]:
        """The codes' values fp32 [..., Di], and their scales fp32 [..., scales a row] or None."""
        flat = storage.codes.view(-1, storage.codes.shape[-1])
        if self.format.scale == "none" or storage.scales is None:
            return flat[slots].to(torch.float32), None
        scales = storage.scales.view(-1, storage.scales.shape[-1])[slots]
        if self.format.name == "fp8":
            values = flat.view(torch.uint8)[slots].view(torch.float8_e4m3fn).float()
        else:
            table = _code_values(self.format.name, storage.codes.device)
            values = table[_unpack(flat[slots]).long()]
        if self.format.name == "fp4":
            power = torch.ldexp(
                torch.ones_like(scales, dtype=torch.float32), scales.int() - E8M0_BIAS
            )
            scales = torch.where(scales == E8M0_NAN, float("nan"), power)
        return values, scales

    def rotate_query(self, q: Tensor) -> Tensor:
        """Queries in the keys' basis."""
        return walsh_hadamard(q) if self.format.rotate else q


def _divide(x: Tensor, by: float) -> Tensor:
    """Divide as IEEE does: by a Python number, CUDA multiplies with the rounded reciprocal."""
    return x / torch.full_like(x, by)


def _round_fp4(groups: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    fraction, exponent = torch.frexp(_divide(amax, FP4_MAX))
    exponent = exponent - (fraction == 0.5).int()  # ceil(log2), exact powers stay
    finite = amax.isfinite()
    power = torch.ldexp(torch.ones_like(amax), exponent)[..., None]
    scaled = (groups.abs() / power).nan_to_num().flatten(1)
    code = torch.zeros_like(scaled, dtype=torch.uint8)
    for index, midpoint in enumerate(FP4_MIDPOINTS):
        code += (scaled >= midpoint) if index % 2 else (scaled > midpoint)
    code |= (groups.flatten(1) < 0).to(torch.uint8) << 3
    scales = torch.where(finite, exponent + E8M0_BIAS, E8M0_NAN).to(torch.uint8)
    return _pack(code), scales


def _pack(code: Tensor) -> Tensor:
    """Two 4-bit codes a byte, the even channel in the low half."""
    return code[..., 0::2] | code[..., 1::2] << 4


def _unpack(packed: Tensor) -> Tensor:
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


def code_values(name: str) -> tuple[float, ...]:
    """The value of each 4-bit code, before the scale."""
    if name == "fp4":
        return FP4_VALUES + tuple(-v for v in FP4_VALUES)
    return tuple(float(v) for v in (*range(8), *range(-8, 0)))


def _code_values(name: str, device: torch.device) -> Tensor:
    return torch.tensor(code_values(name), device=device)


def parse_format(value: str, index_head_dim: int) -> KeyFormat:
    """Read "int4,row,rotate"; raises `PatchUnsupported`."""
    name, *options = [part.strip() for part in value.split(",")]
    if name not in FORMATS:
        raise PatchUnsupported(
            "index_keys", f"format {name[:40]!r}; accepted: {', '.join(FORMATS)}"
        )
    unknown = [part for part in options if part not in ("row", "block", "rotate")]
    if unknown or len(set(options)) != len(options) or {"row", "block"} <= set(options):
        raise PatchUnsupported(
            "index_keys", f"options {','.join(options)[:80]!r}; accepted: row or block, and rotate"
        )
    scaled = name in ("fp8", "fp4", "int4")
    if not scaled and {"row", "block"} & set(options):
        raise PatchUnsupported("index_keys", f"{name} has no scale; leave out row and block")
    scale = next(
        (part for part in options if part != "rotate"), "block" if name == "fp4" else "row"
    )
    rotate = "rotate" in options
    if rotate and index_head_dim & (index_head_dim - 1):
        raise PatchUnsupported("index_keys", f"rotate needs 2^n channels, not {index_head_dim}")
    if scaled and index_head_dim % (BLOCK if scale == "block" else 2):
        raise PatchUnsupported(
            "index_keys", f"{scale} scales and {index_head_dim} channels do not fit"
        )
    return KeyFormat(name=name, scale=scale if scaled else "none", rotate=rotate)


def _parse(binding: Binding) -> IndexKeys:
    return IndexKeys(parse_format(binding.value, binding.settings.index_head_dim))


PATCH = Patch(
    name="index_keys",
    phase="both",
    ops=("index_keys.store",),
    values="fp32 | bf16 | fp8 | fp4 | int4, then optionally row | block, then optionally rotate",
    baseline_value=lambda _settings: "fp32",
    parse=_parse,
    summary="how the index keys are stored",
    source="DeepSeek-V4 rotates and stores fp4 in blocks of 32; public ports store fp8 a row",
)
