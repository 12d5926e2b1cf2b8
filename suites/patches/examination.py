"""All evidence on one patch, from several tests, and the verdict over it."""

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

import kernels
from fidelity.config.settings import MicrotestSettings
from fidelity.errors import Violation
from fidelity.microtests.judge import judge
from fidelity.microtests.results import (
    HARVESTED,
    SYNTHETIC,
    Check,
    Curve,
    PatchReport,
    Point,
    Scope,
)
from fidelity.microtests.verdict_files import code_hash, save
from fidelity.statistics.ladder import Difference, rung
from fidelity.tensors import (
    Case,
    SelectionComparison,
    Stack,
    compounding_checks,
    examine_patch,
    same_bits,
)
from fidelity.tensors.checks import called, differs_check
from fidelity.tensors.compounding import Declared
from fidelity.tensors.patch import device_label
from fidelity.words import PatchVerdict, Question
from suites.patches.expiry import code_of, contents_of, device_words
from suites.patches.whole_model import held_whole, whole_model_checks

NEEDS = (Question.IMPLEMENTATION, Question.FORMAT, Question.PROOF)


class Examination:
    """Collects checks of one patch; raises at the first that does not hold."""

    def __init__(
        self, name: str, settings: MicrotestSettings, *, source: str = SYNTHETIC, data: str = ""
    ) -> None:
        """Begin; `data` says in words what inputs of this source are."""
        self.name = name
        self.source = source
        self.data = data or source
        self.device = torch.device(settings.device)
        self.seed = settings.seed
        self.checkpoint = held_whole(settings.checkpoint)
        given = (settings.checkpoint, settings.inputs if source == HARVESTED else None)
        self._read = dict.fromkeys([self.checkpoint, *(path for path in given if path is not None)])
        self._values = tuple(
            value
            for text in settings.patch
            for own, _, value in [text.partition("=")]
            if own == name and value not in ("", "on")
        )
        self._value_used = False
        self._checks: list[Check] = []
        self._scopes: list[Scope] = []
        self._failures: list[str] = []
        self._curves: list[Curve] = []

    def generator(self) -> torch.Generator:
        """Return a source of synthetic inputs, the same at each run with this seed."""
        return torch.Generator().manual_seed(self.seed)

    def code(self) -> list[Path]:
        """Return the files whose change ends the verdict's life."""
        return list(code_of(self.name))

    def patch(
        self,
        candidate: Any,
        baseline: Any,
        reference: Any,
        cases: Case | Iterable[Case],
        **more: Any,
    ) -> PatchReport:
        """Examine as `assert_patch` does, and keep the checks.

        Raises:
            Violation: a check does not hold.
        """
        options: dict[str, Any] = {"device": self.device, "code": self.code(), "data": self.data}
        options |= {"changes_format": False, **more}
        report = examine_patch(candidate, baseline, reference, cases, name=self.name, **options)
        self._scopes.append(report.scope)
        self.take(report.checks)
        return report

    def compounding(
        self, candidate: Any, reference: Any, stack: Stack, *, declared: Declared
    ) -> None:
        """Ask both questions over many layers: is it the format's maths, and does its error grow.

        Raises:
            Violation: it is further from the format's own maths than plain torch in that format can
                be, or the error of the rounding grows beyond the margin. The KL at the logits of
                random layers is reported alone: the whole model decides it.
        """
        stack = dataclasses.replace(
            stack,
            start=stack.start.to(self.device),
            head=stack.head.to(self.device),
            decides_kl=False,
        )
        self.take(compounding_checks(candidate, reference, stack, where="stack", declared=declared))

    def whole_model(self, tokens: Tensor | None = None, /, **replacements: Any) -> None:
        """Ask the question of format at the logits of a checkpoint, with an op replaced.

        Args:
            tokens: ids of the text; numbered lines where none is given.
            replacements: functions of the reference, by name.

        Raises:
            Violation: the logits move beyond the margin.
        """
        self.take(whole_model_checks(replacements, self.checkpoint, tokens))

    def ran(self, on: kernels.Ops, off: kernels.Ops, op: str) -> None:
        """Prove that the patch is bound and has run, and that nothing of it is there when off.

        Raises:
            Violation: it never ran, or it runs although it is off.
        """
        counter = f"patch.{self.name}"
        state = next(s for s in on.patch_states() if s["name"] == self.name)
        self.take([called(int(state["calls"]))])
        mine = getattr(on, op) is not getattr(off, op) and counter not in off.calls
        sentence = f"{op} counts calls of {self.name} although the patch is off"
        self.must("there when off", holds=mine, sentence=sentence, question=Question.PROOF)

    def take(self, checks: Iterable[Check]) -> None:
        """Keep further checks.

        Raises:
            Violation: one of them does not hold.
        """
        checks = list(checks)
        self._checks += checks
        broken = [check for check in checks if check.holds is False]
        if broken:
            raise Violation(f"{self.name}: {broken[0].sentence}")

    def report(self, name: str, value: float) -> None:
        """Keep a figure that decides nothing."""
        self.take([Check(question=Question.FORMAT, name=name, value=value)])

    def curve(
        self, label: str, tokens: Sequence[int], found: Sequence[SelectionComparison]
    ) -> None:
        """Keep what is selected at each of these context lengths, for the report's chart."""
        points = tuple(
            Point(
                tokens=length,
                needles=one.needles,
                needles_kept=one.needles_kept,
                jaccard=one.jaccard_mean,
                rows=one.rows,
            )
            for length, one in zip(tokens, found, strict=True)
        )
        self._curves.append(Curve(label=label, points=points))

    def values(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the value that was asked for with --fidelity-patch NAME=VALUE, else all known."""
        self._value_used = True
        return self._values or known

    def differs(self, made: Tensor, baseline: Any, arguments: dict[str, Any]) -> None:
        """Prove that the candidate's result has other bits than the baseline's.

        Raises:
            Violation: it is the baseline's to the bit.
        """
        theirs = baseline(**{n: self._there(v) for n, v in arguments.items()}).to(made.device)
        differs = not same_bits(made, theirs.to(made.dtype))
        self.take([differs_check(differs=differs, cases=1)])

    def _there(self, value: Any) -> Any:
        return value.to(self.device) if isinstance(value, Tensor) else value

    def must(
        self, name: str, *, holds: bool, sentence: str, question: Question = Question.IMPLEMENTATION
    ) -> None:
        """Keep one yes or no.

        Raises:
            Violation: no.
        """
        broken = rung(Difference(lost=True)) if not holds else None
        check = Check(
            question=question,
            name=name,
            value=float(not holds),
            limit=0,
            holds=holds,
            rung=None if question is Question.PROOF else broken,
            sentence=sentence,
        )
        self.take([check])

    def failed(self, sentence: str) -> None:
        """Remember a test that ended otherwise than by a check."""
        if not any(check.holds is False for check in self._checks):
            self._failures.append(sentence)

    def conclude(self) -> PatchReport | None:
        """Return the verdict over everything that was measured; None when nothing was."""
        if not (self._checks or self._failures):
            return None
        if self._values and not self._value_used and not self._failures:
            self._failures.append(
                f"the microtest of {self.name} takes no value, and {', '.join(self._values)} was"
                " asked for"
            )
        failures = [
            Check(question=Question.PROOF, name="test", value=1, holds=False, sentence=text)
            for text in self._failures
        ]
        at = datetime.now(UTC).isoformat(timespec="seconds")
        checks = [*self._checks, *failures]
        report = judge(self.name, self._scope(), checks, needs=NEEDS, at=at)
        return msgspec.structs.replace(
            report, source=self.source, value=" ".join(self._values), curves=tuple(self._curves)
        )

    def _scope(self) -> Scope:
        scopes = self._scopes

        def joined(field: str) -> str:
            return "; ".join(dict.fromkeys(getattr(scope, field) for scope in scopes))

        return Scope(
            code=code_hash(self.code()),
            dtype=joined("dtype") or "no numbers",
            shapes=tuple(sorted({shape for scope in scopes for shape in scope.shapes})),
            data=joined("data") or self.data,
            device=device_words(joined("device") or device_label(self.device), self.device),
            seed=self.seed,
            contents=contents_of(*self._read),
        )


class Examinations:
    """One examination a patch."""

    def __init__(self, settings: MicrotestSettings) -> None:
        self.settings = settings
        self.folder = (settings.run_dir or Path("runs")) / "patches"
        self._by_name: dict[tuple[str, str], Examination] = {}
        self._not_harvested: dict[str, str] = {}

    def of(self, name: str, source: str = SYNTHETIC, data: str = "") -> Examination:
        """Return the examination of this patch on such inputs, begun at its first test."""
        begun = self._by_name.get((name, source))
        if begun is None:
            begun = Examination(name, self.settings, source=source, data=data)
            self._by_name[name, source] = begun
        return begun

    def not_harvested(self, name: str, why: str) -> None:
        """Remember why the dumps that were given hold no inputs of this patch."""
        self._not_harvested.setdefault(name, why)

    def conclude(self) -> list[PatchReport]:
        """Judge every patch, write each verdict to its file, and return them, the worst first."""
        reports = [report for e in self._by_name.values() if (report := e.conclude()) is not None]
        if self.settings.inputs is not None:
            harvested = {report.name for report in reports if report.source == HARVESTED}
            reports = [r if r.name in harvested else self._alone(r) for r in reports]
        for report in reports:
            save(report, self.folder)
        order = list(PatchVerdict)[::-1]
        return sorted(reports, key=lambda report: (order.index(report.verdict), report.name))

    def _alone(self, report: PatchReport) -> PatchReport:
        """The verdict, which says that the given dumps had no part in it."""
        why = self._not_harvested.get(report.name, "no tensor of a dump is an input of it")
        reason = f"{report.reason}; synthetic inputs alone were examined: {why}"
        return msgspec.structs.replace(report, reason=reason)
