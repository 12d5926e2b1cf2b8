"""`assert_patch`: one patch, two questions, a verdict with its scope.

*Implementation*: the candidate's error against fp64 maths **on the declared format's own rounded
inputs**, at most twice that of plain torch in that format, over everything and in the worst row;
NaN and Inf masks first. *Choice of format*, asked where `formats` declares rounding: what it does
over many layers, at the logits, and to what is selected.
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
from fidelity.statistics.ladder import Difference, rung
from fidelity.tensors.checks import (
    TINY,
    called,
    control_checks,
    differs_check,
    error_checks,
    untouched_check,
)
from fidelity.tensors.compare import compare, same_bits
from fidelity.tensors.compounding import Stack, compounding_checks
from fidelity.tensors.poison import poisoned
from fidelity.tensors.selection import Selects, selection_checks, selects_of
from fidelity.words import PatchVerdict, Question

Op = Callable[..., Any]


class Case(NamedTuple):
    """Arguments of one call, by name, and a name for messages."""

    name: str
    arguments: Mapping[str, Any]


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
            others (measured, not judged).
        special: inputs in which NaN and Inf are planted; they must come out where maths says.
        calls: the patch's call counter; it must rise.
        code: files of the patch; the candidate's own source file when left out.
        data: where the inputs come from.
        changes_format: whether the question of format must be answered; the presence of
            `formats` when left out.
        must_differ: whether some bit must differ from the baseline's; False for inputs so small
            that both may well agree.
        label: the declared format in words, where `dtype` and `formats` do not say it.

    Raises: ValueError: no input, or outputs whose shapes differ.
    """
    cases = [inputs] if isinstance(inputs, Case) else list(inputs)
    if not cases:
        raise ValueError("inputs: got none; accepted: at least one Case")
    bench = _Bench(candidate, baseline, reference, dtype, torch.device(device), formats or {}, keep)
    before = calls() if calls else 0
    checks: list[Check] = []
    differs = False
    for case in cases:
        found, other_bits = _implementation(bench, case, selects)
        checks += found
        differs |= other_bits
    checks += _behaviour(bench, cases[0], row_inputs)
    for planted in special:
        checks += _special(bench, cases[0], planted)
    if stack is not None:
        checks += compounding_checks(candidate, reference, stack, where="stack")
    if calls is not None:
        checks.append(called(calls() - before))
    if must_differ:
        checks.append(differs_check(differs=differs, cases=len(cases)))
    needed = bool(formats) if changes_format is None else changes_format
    needs = (Question.IMPLEMENTATION, *((Question.FORMAT,) if needed else ()))
    files = [_source(candidate)] if code is None else list(code)
    scope = scope_of(cases, files=files, dtype=label or bench.label, device=device, data=data)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    report = judge(name, scope, checks, needs=needs, at=at)
    note(report)
    return report


class _Bench(NamedTuple):
    """The three ops and how their arguments are made."""

    candidate: Op
    baseline: Op
    reference: Op
    dtype: torch.dtype
    device: torch.device
    formats: Mapping[str, Callable[[Tensor], Tensor]]
    keep: Sequence[str]

    @property
    def label(self) -> str:
        """The declared format in words."""
        run = str(self.dtype).removeprefix("torch.")
        parts = [f"{name} {getattr(f, '__name__', 'rounded')}" for name, f in self.formats.items()]
        return ", ".join([run, *sorted(parts)])

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the candidate gets: on its device, floating inputs in the run's dtype."""
        return {name: self._cast(name, value, self.dtype) for name, value in arguments.items()}

    def declared(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the declared format makes of it: the same, rounded."""
        given = self.given(arguments)
        return {
            name: self.formats[name](value.float()).to(value.dtype)
            if name in self.formats
            else value
            for name, value in given.items()
        }

    def wide(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The declared values in float64, for the maths."""
        return {
            name: value.double() if _is_float(value) else value
            for name, value in self.declared(arguments).items()
        }

    def _cast(self, name: str, value: Any, dtype: torch.dtype) -> Any:
        """A copy: what a kernel does to its arguments must reach nobody else's."""
        if not isinstance(value, Tensor):
            return value
        kept = not _is_float(value) or name in self.keep
        return value.to(self.device, value.dtype if kept else dtype, copy=True)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def outputs_of(made: Any) -> list[Tensor]:
    """The tensors that an op returned, in order."""
    if isinstance(made, Tensor):
        return [made]
    if isinstance(made, Mapping):
        made = made.values()
    return [part for part in made if isinstance(part, Tensor)]


def _implementation(bench: _Bench, case: Case, selects: Selects | None) -> tuple[list[Check], bool]:
    """(checks of one case, whether the candidate's bits differ from the baseline's)."""
    given = bench.given(case.arguments)
    with poisoned():
        made = outputs_of(bench.candidate(**given))
    plain = outputs_of(bench.baseline(**bench.declared(case.arguments)))
    wide = bench.wide(case.arguments)
    truth = outputs_of(bench.reference(**wide))
    if not len(made) == len(plain) == len(truth):
        raise ValueError(
            f"candidate: {len(made)} outputs; accepted: {len(truth)}, as the reference, with the"
            f" baseline's {len(plain)}"
        )
    checks = [untouched_check(given, bench.given(case.arguments), case.name)]
    for place, (mine, theirs, true) in enumerate(zip(made, plain, truth, strict=True)):
        where = f"{case.name}, output {place}" if len(made) > 1 else case.name
        if selects is not None and place == selects.output:
            found = selects_of(selects, wide, mine)
            checks += selection_checks(found, question=Question.IMPLEMENTATION, where=where)
            continue
        plain_error = compare(theirs, true)
        tiny = max(TINY, torch.finfo(mine.dtype).eps / 2) if _is_float(mine) else TINY
        checks += error_checks(compare(mine, true), plain_error, tiny=tiny, where=where)
        checks += control_checks(mine, true, plain_error, tiny, where)
    if bench.formats:  # an alias is what computes on inputs that were never rounded
        plain = outputs_of(bench.baseline(**bench.given(case.arguments)))
    differs = any(not same_bits(mine, theirs) for mine, theirs in zip(made, plain, strict=True))
    return checks, differs


def _behaviour(bench: _Bench, case: Case, row_inputs: Sequence[str]) -> list[Check]:
    """Determinism, and whether a row depends on its neighbours: measured, not judged."""
    first = outputs_of(bench.candidate(**bench.given(case.arguments)))
    again = outputs_of(bench.candidate(**bench.given(case.arguments)))
    same = all(same_bits(a, b) for a, b in zip(first, again, strict=True))
    found = [("runs that differ from the first", float(not same))]
    if row_inputs:
        rows = case.arguments[row_inputs[0]].shape[0]
        apart = [
            not same_bits(whole[t : t + 1], alone)
            for t in sorted({0, rows // 2, rows - 1})
            for whole, alone in zip(first, _alone(bench, case, row_inputs, t), strict=True)
        ]
        found.append(("outputs that change when a row is alone", float(sum(apart))))
    return [Check(question=Question.PROOF, name=n, value=v, where=case.name) for n, v in found]


def _alone(bench: _Bench, case: Case, row_inputs: Sequence[str], t: int) -> list[Tensor]:
    given = bench.given(case.arguments)
    one = {name: v[t : t + 1] if name in row_inputs else v for name, v in given.items()}
    return outputs_of(bench.candidate(**one))


def _special(bench: _Bench, case: Case, name: str) -> list[Check]:
    """Plant NaN, Inf and -Inf in the middle row of an input."""
    checks = []
    for value in (float("nan"), float("inf"), float("-inf")):
        tensor = case.arguments[name].clone()
        row = tensor[tensor.shape[0] // 2].view(-1)
        row[row.numel() // 2] = value
        arguments = {**case.arguments, name: tensor}
        made = outputs_of(bench.candidate(**bench.given(arguments)))
        truth = outputs_of(bench.reference(**bench.wide(arguments)))
        floats = [(a, b) for a, b in zip(made, truth, strict=True) if _is_float(a)]
        wrong = sum(int((a.isfinite() != b.isfinite()).sum()) for a, b in floats)
        where = f"{case.name}, {value} in {name}"
        checks.append(
            Check(
                question=Question.IMPLEMENTATION,
                name="NaN and Inf that do not come out where they should",
                value=wrong,
                limit=0,
                holds=wrong == 0,
                rung=rung(Difference(lost=True)) if wrong else None,
                where=where,
                sentence=f"{wrong} values are finite where maths is not, or the other way round"
                f" ({where})",
            )
        )
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
