"""The decisions of one claim: from its trials to the finding that ends its test.

Asks nothing; what is asked, and by whom, lies in `fidelity.measure`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.errors import EndpointError, HarnessError, Inconclusive, NotApplicable, Violation
from fidelity.records import Control, Finding, Trial
from fidelity.verdicts.decisions import (
    Claim,
    all_true_finding,
    noninferior_finding,
    rate_finding,
    undecided_finding,
)
from fidelity.verdicts.opened import OpenedClass
from fidelity.verdicts.parts import merge
from fidelity.words import Blame, Ladder, Outcome

if TYPE_CHECKING:
    from fidelity.runs.journal import Journal


class Deciding:
    """One claim being decided.

    Attributes:
        claim: its id, "<suite>/<test>[<param>]".
        suite: stem of its file, without "test_".
        finding: the last decision, None while there is none.
    """

    def __init__(self, claim: Claim, *, journal: "Journal | None") -> None:
        """Begin with nothing known of the claim; without a journal nothing is written."""
        self._claim = claim
        self._journal = journal
        self._opened: list[OpenedClass] = []
        self._controls: list[Control] = []
        self._needs: list[str] = []
        self._notes: list[str] = []
        self.finding: Finding | None = None

    @property
    def claim(self) -> str:
        """Id of the claim."""
        return self._claim.id

    @property
    def suite(self) -> str:
        """Stem of the suite's file, without "test_"."""
        return self._claim.suite

    @property
    def needed(self) -> tuple[str, ...]:
        """Capabilities that were required so far."""
        return tuple(self._needs)

    @property
    def fresh_trials(self) -> list[Trial]:
        """Trials of the classes that were opened so far."""
        return [trial for found in self._opened for trial in found.trials]

    def note(self, sentence: str) -> None:
        """Say something about the claim's scope beside its decision; "" says nothing."""
        if sentence:
            self._notes.append(sentence)

    def rate_at_least(
        self,
        trials: Sequence[Trial],
        threshold: float,
        *,
        title: str,
        effect_name: str = "recall",
        blame: Blame | None = None,
    ) -> None:
        """Decide that the rate of ok trials is >= threshold, in every opened class too."""
        self.decide(
            self.rate_finding(trials, threshold, title=title, effect_name=effect_name, blame=blame)
        )

    def noninferior(
        self, trials: Sequence[Trial], control_trials: Sequence[Trial], margin: float, *, title: str
    ) -> None:
        """Decide that this arm is at most `margin` worse than its control arm, pair by pair."""
        self.decide(self.noninferior_finding(trials, control_trials, margin, title=title))

    def all_true(
        self, trials: Sequence[Trial], *, title: str, ladder: Ladder | None = None
    ) -> None:
        """Decide that every single trial holds: one counter-example fails the claim."""
        self.decide(self.all_true_finding(trials, title=title, ladder=ladder))

    def rate_finding(
        self,
        trials: Sequence[Trial],
        threshold: float,
        *,
        title: str,
        effect_name: str = "recall",
        blame: Blame | None = None,
    ) -> Finding:
        """Return what `rate_at_least` would decide, for `decide` together with others."""
        return rate_finding(
            self._claim,
            trials,
            threshold,
            title=title,
            effect_name=effect_name,
            opened=self._opened,
            blame=blame,
        )

    def noninferior_finding(
        self,
        trials: Sequence[Trial],
        control_trials: Sequence[Trial],
        margin: float,
        *,
        title: str,
        blame: Blame = Blame.DEPLOYMENT,
    ) -> Finding:
        """Return what `noninferior` would decide, for `decide` together with others."""
        return noninferior_finding(
            self._claim,
            trials,
            control_trials,
            margin,
            title=title,
            blame=blame,
            opened=self._opened,
        )

    def all_true_finding(
        self,
        trials: Sequence[Trial],
        *,
        title: str,
        ladder: Ladder | None = None,
        blame: Blame = Blame.DEPLOYMENT,
    ) -> Finding:
        """Return what `all_true` would decide, for `decide` together with others."""
        return all_true_finding(self._claim, trials, title=title, ladder=ladder, blame=blame)

    def undecided_finding(self, trials: Sequence[Trial], *, title: str, reason: str) -> Finding:
        """Return an inconclusive part: misses that a weak model and a broken server both have."""
        return undecided_finding(self._claim, trials, title=title, reason=reason)

    def decide(
        self, *findings: Finding, title: str = "", profile: dict[str, Any] | None = None
    ) -> None:
        """Record one finding for the claim, the worst of those given, and end the test by it.

        A profile says where two arms part, for the report; see `Finding.profile`.

        Raises:
            Violation: fail. Inconclusive: inconclusive, or a control of this claim was blind.
            EndpointError: error. NotApplicable: not applicable.
            HarnessError: the claim was decided already.
        """
        if self.finding is not None:
            raise HarnessError(
                f"{self.claim} was decided already: give decide() all findings at once"
            )
        finding = self._under_controls(merge(self._claim, findings, title=title))
        finding = _with_needs(finding, tuple(self._needs))
        if profile is not None:
            finding = msgspec.structs.replace(finding, profile=profile)
        if self._notes:
            reason = "; ".join((finding.reason, *self._notes))
            finding = msgspec.structs.replace(finding, reason=reason)
        self.record(finding)
        _raise_for(finding)

    def record(self, finding: Finding) -> None:
        """Write a finding to the journal unless it holds the very same one."""
        self.finding = finding
        if self._journal is None:
            return
        held = self._journal.findings.get(finding.claim)
        if held is None or not _same(held, finding):
            self._journal.append(finding)

    def _under_controls(self, finding: Finding) -> Finding:
        blind = next((control for control in self._controls if not control.ok), None)
        if blind is None or finding.outcome is not Outcome.PASS:
            return finding
        reason = (
            f"the {blind.control} control ({blind.what}) must {blind.expected} and was"
            f" {blind.observed}; without it: {finding.reason}"
        )
        return msgspec.structs.replace(finding, outcome=Outcome.INCONCLUSIVE, reason=reason)


def _raise_for(finding: Finding) -> None:
    match finding.outcome:
        case Outcome.PASS:
            return
        case Outcome.FAIL:
            raise Violation(_words(finding))
        case Outcome.INCONCLUSIVE:
            raise Inconclusive(_words(finding))
        case Outcome.ERROR:
            raise EndpointError(_words(finding))
        case Outcome.NOT_APPLICABLE:
            raise NotApplicable(finding.reason)


def _words(finding: Finding) -> str:
    return f"{finding.title}: {finding.reason}"


def _with_needs(finding: Finding, needs: tuple[str, ...]) -> Finding:
    return msgspec.structs.replace(finding, needs=needs or finding.needs)


def _same(held: Finding, finding: Finding) -> bool:
    """True when a finding says what the journal says already, settled or not."""
    return held == msgspec.structs.replace(finding, at=held.at, provisional=held.provisional)
