"""From a run of the suites to items: each claim, and whether the patches ran at all."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from fidelity.gate.baseline import StoredClaim, compare_claim
from fidelity.gate.items import Item
from fidelity.gate.mapping import Touched
from fidelity.gate.suites_run import ALL, SuitesResult
from fidelity.records import Finding
from fidelity.words import Outcome

_RED = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)


def claim_items(
    ran: SuitesResult,
    touched: Sequence[Touched],
    suites: Sequence[str],
    before: Mapping[str, StoredClaim],
    margin: float,
) -> list[Item]:
    """Return what the suites say of a change, held against the stored claims.

    A claim that fails does not say which of several patches is to blame: all are named.
    """
    place = touched[0].change
    names = ", ".join(each.patch.name for each in touched)
    items: list[Item] = []
    for finding in ran.findings:
        worse = compare_claim(finding, before.get(finding.claim), margin)
        items += _items_of(finding, worse, names, place.path, place.line)
    stems = {PurePath(name).stem.removeprefix("test_") for name in suites}
    measured = {finding.claim for finding in ran.findings}
    for claim in before:
        asked = ALL in suites or claim.partition("/")[0] in stems
        if asked and claim not in measured:
            text = f"{claim} is in the baseline and was not measured"
            items.append(_item("claim", claim, Outcome.ERROR, text, place.path, place.line))
    if not ran.ended or (ran.exit_code and not any(item.outcome in _RED for item in items)):
        text = f"the suites ended with exit code {ran.exit_code}"
        text += "" if ran.ended else ", and without a verdict"
        items.append(_item("claim", "suites", Outcome.ERROR, text, place.path, place.line))
    return [*items, *_exercised(ran, touched)]


def _items_of(finding: Finding, worse: str, names: str, path: str, line: int) -> Iterator[Item]:
    passed = finding.outcome is Outcome.PASS
    text = finding.title if passed else f"{finding.title}: {finding.reason}"
    if finding.outcome in _RED:
        text = f"with {names} changed: {text}" + (f" ({worse})" if worse else "")
    yield _item("claim", finding.claim, finding.outcome, text, path, line)
    if worse and finding.outcome not in _RED:
        text = f"{finding.claim}, with {names} changed: {worse}"
        yield _item("worse-than-baseline", finding.claim, Outcome.FAIL, text, path, line)


def _exercised(ran: SuitesResult, touched: Sequence[Touched]) -> Iterator[Item]:
    """A patch that was off, or never ran, is not measured by suites that pass."""
    for each in touched:
        state = ran.states.get(each.patch.name)
        outcome = Outcome.PASS
        if state is None or state.state not in {"on", "off"}:
            outcome, text = Outcome.NOT_APPLICABLE, "nothing tells whether it was on"
        elif state.state == "off":
            outcome, text = Outcome.INCONCLUSIVE, "it was off: the suites say nothing of it"
        elif state.inert:
            outcome, text = Outcome.INCONCLUSIVE, "it was on and never ran: inert"
        else:
            text = "it was on" + (f", {state.calls} calls" if state.calls else "")
        text = f"{each.patch.name}: {text}"
        where = each.change
        name = each.patch.name
        yield _item("patch-not-exercised", name, outcome, text, where.path, where.line)


def _item(rule: str, subject: str, outcome: Outcome, message: str, path: str, line: int) -> Item:
    return Item(rule=rule, subject=subject, outcome=outcome, message=message, path=path, line=line)
