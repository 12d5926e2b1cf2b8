"""Truth for the patch `index_keys`: the keys as each storage format reads them back.

| format | a channel | scale | blocks |
| --- | --- | --- | --- |
| fp32, bf16 | the float | none | - |
| fp8 | e4m3 | float32, amax / 448 | a row, or 32 |
| fp4 | e2m1 | next power of two not below amax / 6 | a row, or 32 |
| int4 | -7 .. 7 | float32, amax / 7 | a row, or 32 |
"""

from collections.abc import Callable

from torch import Tensor

from reference.arguments import refuse
from reference.formats import round_fp8, round_int4, round_mxfp4
from reference.grids import round_bf16
from reference.hadamard import hadamard_rotate
from reference.indexer import index_scores, is_tied, select, visible_entries

__all__ = [
    "hadamard_rotate",
    "index_scores",
    "is_tied",
    "round_keys",
    "select",
    "visible_entries",
]

BLOCK = 32


def round_keys(keys: Tensor, form: str, *, scale: str = "none", rotate: bool = False) -> Tensor:
    """Keys [N, Di] as they are read back, float32; with `rotate` in the Hadamard basis.

    Queries then go through `hadamard_rotate` too.

    Args:
        keys: [N, Di], rotated by position.
        form: "fp32", "bf16", "fp8", "fp4" or "int4".
        scale: "row" or "block" (of 32) for fp8, fp4 and int4; "none" for the others.
        rotate: multiply by the Hadamard matrix before rounding.

    Raises: ValueError: another format, or a scale that does not go with it.
    """
    keys = hadamard_rotate(keys) if rotate else keys
    scaled: dict[str, Callable[..., Tensor]] = {
        "fp8": round_fp8,
        "int4": round_int4,
        "fp4": round_mxfp4,
    }
    if form in ("fp32", "bf16") and scale == "none":
        return keys.float() if form == "fp32" else round_bf16(keys)
    if form not in scaled:
        refuse("form", f"{form} with scale {scale}", "fp32, bf16; fp8, fp4, int4 with a scale")
    if scale not in ("row", "block"):
        refuse("scale", scale, "'row' or 'block'")
    return scaled[form](keys, block=BLOCK if scale == "block" else keys.shape[-1])
