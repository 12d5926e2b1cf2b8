"""`assert_patch`: one patch, two questions, a verdict with its scope.

*Implementation*: the candidate's error against fp64 maths **on the declared format's own rounded
inputs**, at most twice that of plain torch in that format, over everything and in the worst row;
NaN and Inf masks first; at every call, and on rows alone. The baseline is held too: it may err as
plain arithmetic can, no more. *Choice of format*, asked where `formats` declares rounding: what it
does over many layers, at the logits, and to what is selected.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fidelity.errors import Inconclusive, Violation
from fidelity.microtests.judge import judge
from fidelity.microtests.results import Check, PatchReport, Scope
from fidelity.microtests.seen import note
from fidelity.microtests.verdict_files import code_hash
from fidelity.tensors.arguments import (
    Case,
    cases_of,
    check_kinds,
    check_names,
    check_outputs,
    count_of,
    device_of,
    refuse,
)
from fidelity.tensors.behaviour import behaviour_checks
from fidelity.tensors.bench import Bench, Op
from fidelity.tensors.checks import (
    called,
    control_checks,
    differs_check,
    special_check,
    untouched_check,
)
from fidelity.tensors.compare import compare, same_bits
from fidelity.tensors.compounding import Stack, compounding_checks
from fidelity.tensors.poison import poisoned
from fidelity.tensors.selection import Selects
from fidelity.tensors.yardstick import Yardstick, baseline_checks, tiny_of
from fidelity.words import PatchVerdict, Question


def assert_patch(
    candidate: Op, baseline: Op, reference: Op, inputs: Case | Iterable[Case], **options: Any
) -> PatchReport:
    """Examine a patch; return its report when it is exonerated, and raise otherwise.

    Arguments are those of `examine_patch`.

    Raises:
        Violation: the patch is convicted; the message is the reason.
        Inconclusive: it is inert or undecided.
        ValueError: an argument does not fit.
    """
    report = examine_patch(candidate, baseline, reference, inputs, **options)
    if report.verdict is not PatchVerdict.EXONERATED:
        kind = Violation if report.verdict is PatchVerdict.CONVICTED else Inconclusive
        raise kind(f"{report.name} {report.verdict}: {report.reason}")
    return report


def examine_patch(
    candidate: Op,
    baseline: Op,
    reference: Op,
    inputs: Case | Iterable[Case],
    *,
    name: str,
    dtype: torch.dtype,
    device: str | torch.device = "cpu",
    formats: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    keep: Sequence[str] = (),
    stack: Stack | None = None,
    selects: Selects | None = None,
    row_inputs: Sequence[str] = (),
    special: Sequence[str] = (),
    calls: Callable[[], int] | None = None,
    code: Sequence[Path] | None = None,
    data: str = "synthetic",
    changes_format: bool | None = None,
    must_differ: bool = True,
    label: str | None = None,
) -> PatchReport:
    """Measure everything that is asked, and judge it; see the module's docstring.

    Args:
        candidate: the patched op, called by keyword; returns a tensor or several.
        baseline: plain torch in the declared format, same signature and outputs.
        reference: the maths, same signature and outputs; gets float64 tensors.
        inputs: what to call them with; the outputs must not alias the inputs.
        name: of the patch.
        dtype: of the run: floating inputs are cast to it.
        device: where candidate and baseline run.
        formats: input name -> rounding to the declared format and back. The candidate gets the
            input as it is and rounds it itself; reference and baseline get it rounded.
        keep: floating inputs that stay float32 whatever the dtype is.
        stack: layers for the question of format.
        selects: how selected sets among the outputs are judged.
        row_inputs: inputs whose first dimension is tokens: each output row must not depend on the
            others. Other bits on a row alone are measured, its error is judged.
        special: inputs in which NaN and Inf are planted; they must come out where maths says.
        calls: the patch's call counter; it must rise.
        code: files of the patch; the candidate's own source file when left out.
        data: where the inputs come from.
        changes_format: whether the question of format must be answered; the presence of
            `formats` when left out.
        must_differ: whether some bit must differ from the baseline's; False for inputs so small
            that both may well agree.
        label: the declared format in words, where `dtype` and `formats` do not say it.

    Raises: ValueError: an argument of another kind, a name that no input has, outputs that are no
        tensors, or of another number, shape or dtype, or cases in which nothing is compared.
    """
    cases = cases_of(inputs)
    ops = {"candidate": candidate, "baseline": baseline, "reference": reference}
    kinds = {"stack": (stack, Stack), "selects": (selects, Selects)}
    check_kinds(ops=ops, name=name, dtype=dtype, calls=calls, code=code, kinds=kinds)
    formats = {} if formats is None else formats
    check_names(cases, formats=formats, keep=keep, row_inputs=row_inputs, special=special)
    bench = Bench(candidate, baseline, reference, dtype, device_of(device), formats, keep)
    before = count_of(calls)
    examined = [_implementation(bench, case, selects) for case in cases]
    if not any(one.values for one in examined):
        refuse(
            "inputs", "no case whose outputs hold a number", "at least one: nothing was compared"
        )
    checks = [check for one in examined for check in one.checks]
    checks += behaviour_checks(bench, cases[0], examined[0].yardstick, row_inputs)
    for planted in special:
        checks += _special(bench, cases[0], planted)
    if stack is not None:
        checks += compounding_checks(candidate, reference, stack, where="stack")
    if calls is not None:
        checks.append(called(count_of(calls) - before))
    if must_differ:
        differs = any(one.differs for one in examined)
        checks.append(differs_check(differs=differs, cases=len(cases)))
    needed = bool(formats) if changes_format is None else changes_format
    needs = (Question.IMPLEMENTATION, *((Question.FORMAT,) if needed else ()))
    files = [_source(candidate)] if code is None else list(code)
    scope = scope_of(cases, files=files, dtype=label or bench.label, device=device, data=data)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    report = judge(name, scope, checks, needs=needs, at=at)
    note(report)
    return report


class _Examined(NamedTuple):
    """One case: its checks, what it was held against, and what came of it.

    Attributes:
        differs: whether the candidate's bits differ from the baseline's.
        values: numbers that were compared.
    """

    checks: list[Check]
    yardstick: Yardstick
    differs: bool
    values: int


def _implementation(bench: Bench, case: Case, selects: Selects | None) -> _Examined:
    given = bench.given(case.arguments)
    with poisoned():
        made = bench.run(given)
    plain = bench.plain(bench.declared(case.arguments))
    wide = bench.wide(case.arguments)
    truth = bench.true(wide)
    check_outputs(made, plain, truth)
    if selects is not None and not 0 <= selects.output < len(truth):
        refuse("selects", f"output {selects.output}", f"0 .. {len(truth) - 1}, the outputs")
    chosen = None if selects is None else selects.output
    errors = [
        None if place == chosen else compare(theirs, true)
        for place, (theirs, true) in enumerate(zip(plain, truth, strict=True))
    ]
    yardstick = Yardstick(case.name, wide, truth, errors, selects)
    checks = [untouched_check(given, bench.given(case.arguments), case.name)]
    checks += baseline_checks(yardstick, bench.reference, plain, bench.dtype)
    checks += yardstick.checks(made)
    for place, (mine, true, error) in enumerate(zip(made, truth, errors, strict=True)):
        if error is not None:
            checks += control_checks(mine, true, error, tiny_of(mine), yardstick.where(place))
    if bench.formats:  # an alias is what computes on inputs that were never rounded
        plain = bench.plain(bench.given(case.arguments))
    differs = any(not same_bits(mine, theirs) for mine, theirs in zip(made, plain, strict=True))
    return _Examined(checks, yardstick, differs, sum(part.numel() for part in made))


def _special(bench: Bench, case: Case, name: str) -> list[Check]:
    """Plant NaN, Inf and -Inf in the middle row of an input."""
    checks = []
    for value in (float("nan"), float("inf"), float("-inf")):
        tensor = case.arguments[name].clone()
        row = tensor[tensor.shape[0] // 2].view(-1)
        row[row.numel() // 2] = value
        arguments = {**case.arguments, name: tensor}
        made = bench.run(bench.given(arguments))
        truth = bench.true(bench.wide(arguments))
        checks.append(special_check(made, truth, f"{case.name}, {value} in {name}"))
    return checks


def scope_of(
    cases: Sequence[Case],
    *,
    files: Sequence[Path],
    dtype: str,
    device: str | torch.device,
    data: str,
) -> Scope:
    """What a verdict over these cases holds for."""
    shapes = {
        f"{name}{list(value.shape)}"
        for case in cases
        for name, value in case.arguments.items()
        if isinstance(value, Tensor)
    }
    return Scope(
        code=code_hash(files),
        dtype=dtype,
        shapes=tuple(sorted(shapes)),
        data=data,
        device=device_label(torch.device(device)),
    )


def device_label(device: torch.device) -> str:
    """Name of the device and the versions that compute on it."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{device.type}, torch {torch.__version__}"


def _source(candidate: Op) -> Path:
    target = inspect.unwrap(candidate)
    file = inspect.getsourcefile(getattr(target, "func", target))
    if file is None:
        raise ValueError("code: the candidate has no source file; accepted: the files of the patch")
    return Path(file)
