"""Controls: trials whose outcome is known beforehand, so that a blind check cannot pass."""

from collections.abc import Sequence

from fidelity.errors import EndpointError
from fidelity.records import Control, Trial
from fidelity.verdicts.decisions import Claim
from fidelity.verdicts.evidence import Evidence
from fidelity.words import ControlKind

GUESSED_RIGHT = 0.25
"""Share of a positive control's trials that may come out right by luck."""


def control_of(
    claim: Claim, kind: ControlKind, what: str, trials: Sequence[Trial], *, must: str = ""
) -> Control:
    """Return the control with what was observed.

    A positive control is ok when at most a quarter of its trials came out right; a null control
    when all of them agreed.

    Raises:
        EndpointError: none of the trials could be measured.
    """
    evidence = Evidence.of(trials)
    right = len(evidence.measured) - len(evidence.misses)
    total = len(evidence.measured)
    if total == 0:
        raise EndpointError(
            f"the {kind} control ({what}): {evidence.trouble or 'nothing was asked'}"
        )
    if kind is ControlKind.POSITIVE:
        ok, observed = right <= GUESSED_RIGHT * total, f"right in {right} of {total} trials"
    else:
        ok, observed = right == total, f"equal in {right} of {total} trials"
    return Control(
        claim=claim.id,
        suite=claim.suite,
        control=kind,
        what=what,
        expected=must or ("fail" if kind is ControlKind.POSITIVE else "agree"),
        observed=observed,
        ok=ok,
        trials=tuple(trial.id for trial in trials),
    )
