"""A declared format in a stack of layers: ops that round by themselves what it rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fidelity.tensors import Op
from fidelity.tensors.compounding import Declared


def declared(
    reference: Op,
    plain: Op,
    *,
    formats: Mapping[str, Op] | None = None,
    dtype: torch.dtype = torch.float32,
    keep: Sequence[str] = (),
) -> Declared:
    """The maths on the format's own rounded inputs, and plain torch in that format.

    Args:
        reference: the maths.
        plain: the same in plain torch.
        formats: input name -> rounding to the format and back, for both.
        dtype: in which plain torch computes; its results come back in float32.
        keep: floating inputs that stay float32 whatever the dtype is.
    """
    formats = formats or {}

    def rounded(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {n: formats[n](v) if n in formats else v for n, v in arguments.items()}

    def maths(**arguments: Any) -> Any:
        return reference(**rounded(arguments))

    def in_dtype(**arguments: Any) -> Any:
        given = {
            n: v.to(dtype) if _is_float(v) and n not in keep else v
            for n, v in rounded(arguments).items()
        }
        made = plain(**given)
        return _float32(made) if isinstance(made, Tensor) else tuple(map(_float32, made))

    return Declared(maths, in_dtype)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def _float32(made: Tensor) -> Tensor:
    return made.float() if _is_float(made) else made
