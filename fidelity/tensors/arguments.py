"""What `assert_patch` refuses: each time the argument, what came, and what is accepted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_LONGEST = 60


class Case(NamedTuple):
    """Arguments of one call, by name, and a name for messages."""

    name: str
    arguments: Mapping[str, Any]


def refuse(argument: str, came: str, accepted: str) -> NoReturn:
    """Raise the ValueError of every argument that does not fit."""
    raise ValueError(f"{argument}: got {came}; accepted: {accepted}")


def told(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {short(value.dtype)}"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"a {type(value).__name__}"


def short(dtype: torch.dtype) -> str:
    """A dtype without its module."""
    return str(dtype).removeprefix("torch.")


def is_float(value: Any) -> bool:
    """Whether it is a floating tensor."""
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def cases_of(inputs: Any) -> list[Case]:
    """The cases that were given, at least one.

    Raises: ValueError: something else is among them.
    """
    several = isinstance(inputs, Iterable) and not isinstance(inputs, (str, Mapping, Tensor))
    if not several:
        refuse("inputs", told(inputs), "a Case, or several")
    cases: list[Any] = [inputs] if isinstance(inputs, Case) else list(inputs)
    if not cases:
        refuse("inputs", "none", "at least one Case")
    for case in cases:
        if not isinstance(case, Case):
            refuse("inputs", told(case), "a Case, or several")
        arguments = case.arguments
        if not isinstance(arguments, Mapping) or not all(isinstance(n, str) for n in arguments):
            refuse(
                f"inputs, case {case.name!r}",
                told(arguments),
                "a mapping of argument names to values",
            )
    return cases


def check_kinds(
    *,
    ops: Mapping[str, Any],
    name: Any,
    dtype: Any,
    calls: Any,
    code: Any,
    kinds: Mapping[str, tuple[Any, type]],
) -> None:
    """Refuse what is of another kind; `kinds` holds (value or None, class) by argument."""
    for argument, op in ops.items():
        if not callable(op):
            refuse(argument, told(op), "a function")
    if not isinstance(name, str) or not name:
        refuse("name", told(name), "the patch's name, a text")
    if dtype not in DTYPES:
        refuse("dtype", told(dtype), ", ".join(map(str, DTYPES)))
    if calls is not None and not callable(calls):
        refuse("calls", told(calls), "a function that returns a count")
    for argument, (value, wanted) in kinds.items():
        if value is not None and not isinstance(value, wanted):
            refuse(argument, told(value), f"a {wanted.__name__}")
    for path in _listed("code", code or (), "paths of files"):
        if not isinstance(path, Path) or not path.is_file():
            refuse("code", told(path), "paths of files that are there")


def device_of(device: Any) -> torch.device:
    """The device, where torch has it here."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        refuse("device", told(device), "a device of torch, as 'cpu' or 'cuda'")
    if found.type == "cuda" and not torch.cuda.is_available():
        refuse("device", told(str(found)), "a device that is here; torch sees no GPU")
    return found


def check_names(
    cases: Sequence[Case],
    *,
    formats: Any,
    keep: Any,
    row_inputs: Any,
    special: Any,
) -> None:
    """Refuse names that no input has, and inputs that cannot be used as they are named."""
    if not isinstance(formats, Mapping):
        refuse("formats", told(formats), "a mapping of input names to functions")
    known = list(dict.fromkeys(name for case in cases for name in case.arguments))
    first = cases[0]
    _known("formats", formats, known)
    _known("keep", _listed("keep", keep), known)
    _known("row_inputs", _listed("row_inputs", row_inputs), list(first.arguments))
    _known("special", _listed("special", special), list(first.arguments))
    for name, rounding in formats.items():
        if not callable(rounding):
            refuse(f"formats[{name!r}]", told(rounding), "a function: rounding to it and back")
        for case in cases:
            if name in case.arguments and not is_float(case.arguments[name]):
                came = f"{told(case.arguments[name])} as {name!r} of case {case.name!r}"
                refuse("formats", came, "floating tensors")
    for name in special:
        value = first.arguments[name]
        if not is_float(value) or not value.dim() or not value.numel():
            refuse("special", f"{told(value)} as {name!r}", "a floating tensor that has rows")
    rows = {name: _rows(name, first.arguments[name]) for name in row_inputs}
    if len(set(rows.values())) > 1:
        refuse("row_inputs", f"so many rows: {rows}", "as many of each input")


def _rows(name: str, value: Any) -> int:
    if not isinstance(value, Tensor) or not value.dim() or not value.shape[0]:
        refuse("row_inputs", f"{told(value)} as {name!r}", "a tensor that has rows")
    return value.shape[0]


def _listed(argument: str, names: Any, what: str = "names of inputs") -> Sequence[Any]:
    if isinstance(names, (str, Path)) or not isinstance(names, Sequence):
        refuse(argument, told(names), f"a sequence of {what}, as ('x',)")
    return names


def _known(argument: str, names: Iterable[Any], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            refuse(argument, told(name), f"names of inputs: {', '.join(known)}")


def count_of(calls: Callable[[], int] | None) -> int:
    """What the call counter says."""
    if calls is None:
        return 0
    count = calls()
    if not isinstance(count, int):
        refuse("calls", f"{told(count)} from it", "a whole number of calls")
    return count


def outputs_of(made: Any, who: str) -> list[Tensor]:
    """The tensors that an op returned, in order.

    Raises: ValueError: it returned something else, or nothing; `who` names the op.
    """
    accepted = "a tensor, or several in a tuple, list or mapping"
    if isinstance(made, Tensor):
        return [made]
    if isinstance(made, Mapping):
        made = tuple(made.values())
    if not isinstance(made, (tuple, list)):
        refuse(who, f"{told(made)} from it", accepted)
    if not made:
        refuse(who, "no output from it", accepted)
    for place, part in enumerate(made):
        if not isinstance(part, Tensor):
            refuse(who, f"{told(part)} as output {place}", accepted)
    return list(made)


def check_outputs(made: list[Tensor], plain: list[Tensor], truth: list[Tensor]) -> None:
    """Refuse another number of outputs, other shapes, or a dtype that the baseline has not.

    An integer stands for any other: what counts is its value.
    """
    if not len(made) == len(plain) == len(truth):
        raise ValueError(
            f"candidate: {len(made)} outputs; accepted: {len(truth)}, as the reference, with the"
            f" baseline's {len(plain)}"
        )
    several = len(made) > 1
    for place, (mine, theirs, true) in enumerate(zip(made, plain, truth, strict=True)):
        where = f", output {place}" if several else ""
        for who, one in (("candidate", mine), ("baseline", theirs)):
            if one.shape != true.shape:
                raise ValueError(
                    f"{who}{where}: shape {list(one.shape)}; accepted: {list(true.shape)}, the"
                    " truth's"
                )
            if one.dtype.is_complex:
                raise ValueError(f"{who}{where}: {short(one.dtype)}; accepted: real numbers")
        if _kind(mine) != _kind(theirs):
            raise ValueError(
                f"candidate{where}: {short(mine.dtype)}; accepted: {short(theirs.dtype)}, the"
                " baseline's"
            )


def _kind(tensor: Tensor) -> Any:
    integer = not tensor.dtype.is_floating_point and tensor.dtype is not torch.bool
    return "integer" if integer else tensor.dtype
