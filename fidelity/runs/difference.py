"""`fidelity diff`: two runs claim by claim, and probe by probe where both asked the same."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fidelity.records import AnyRecord, Finding, Manifest, Part, Trial, read_journal
from fidelity.runs.journal import FILE_NAME
from fidelity.runs.summary import printable
from fidelity.statistics.paired import mcnemar_exact, signed_ranks_p
from fidelity.words import Outcome


def difference_lines(before: Path, after: Path) -> tuple[list[str], bool]:
    """Return the differences as text, and whether a claim that did not fail now fails.

    Raises:
        JournalError: one of the folders holds no readable run.
    """
    old, new = (list(read_journal(folder / FILE_NAME)) for folder in (before, after))
    lines = [_subject("before", old), _subject("after", new)]
    was, now = _findings(old), _findings(new)
    trials_was, trials_now = _trials(old), _trials(new)
    worse = False
    for claim in dict.fromkeys((*was, *now)):
        text = _claim_line(was.get(claim), now.get(claim))
        pairs = _pairs_line(claim, trials_was, trials_now)
        worse |= _fails(now.get(claim)) and not _fails(was.get(claim))
        parts = _part_lines(was.get(claim), now.get(claim))
        if text or parts or pairs:
            lines += [f"{printable(claim)}: {text or 'same outcome'}", *parts, *pairs]
    if len(lines) == 2:
        lines.append("no claim and no probe differs")
    return lines, worse


def _subject(name: str, records: Iterable[AnyRecord]) -> str:
    manifest = next((record for record in records if isinstance(record, Manifest)), None)
    if manifest is None:
        return f"{name}: no manifest"
    return (
        f"{name}: {manifest.run_id}, deployment {manifest.deployment}, model"
        f" {printable(manifest.model)}, seed {manifest.seed}, budget {manifest.budget}"
    )


def _findings(records: Iterable[AnyRecord]) -> dict[str, Finding]:
    return {record.claim: record for record in records if isinstance(record, Finding)}


def _trials(records: Iterable[AnyRecord]) -> dict[tuple[str, str, int, str, int], Trial]:
    return {
        (record.claim, record.arm, record.stage, record.key, record.seed): record
        for record in records
        if isinstance(record, Trial)
    }


def _claim_line(was: Finding | None, now: Finding | None) -> str:
    if was is None or now is None:
        return "only before" if now is None else "only after"
    if was.outcome is now.outcome and was.effect == now.effect:
        return ""
    return f"{was.outcome} {_effect(was)} -> {now.outcome} {_effect(now)}"


def _part_lines(was: Finding | None, now: Finding | None) -> list[str]:
    """Return the parts of a claim that came out otherwise, matched by their titles."""
    if was is None or now is None:
        return []
    before = {part.title: part for part in was.parts}
    after = {part.title: part for part in now.parts}
    return [
        f"  {printable(title)}: {_part(before.get(title))} -> {_part(after.get(title))}"
        for title in dict.fromkeys((*before, *after))
        if _part(before.get(title)) != _part(after.get(title))
    ]


def _part(part: Part | None) -> str:
    return "no part" if part is None else f"{part.outcome} {_effect(part)}".rstrip()


def _effect(decided: Finding | Part) -> str:
    if decided.effect is None:
        return ""
    return f"({decided.effect_name} {decided.effect:.3f}, n {decided.n})"


def _pairs_line(
    claim: str,
    was: dict[tuple[str, str, int, str, int], Trial],
    now: dict[tuple[str, str, int, str, int], Trial],
) -> list[str]:
    shared = [
        (was[key], now[key])
        for key in was.keys() & now.keys()
        if key[0] == claim and was[key].ok is not None and now[key].ok is not None
    ]
    lost = sum(bool(one.ok) and not two.ok for one, two in shared)
    gained = sum(bool(two.ok) and not one.ok for one, two in shared)
    graded = _graded_line(shared)
    if not lost + gained:
        return graded
    p_value = mcnemar_exact(lost, gained)
    counts = f"{lost} lost and {gained} gained of {len(shared)}"
    return [f"  same probes: {counts} (exact McNemar p {p_value:.3g})", *graded]


def _graded_line(shared: Sequence[tuple[Trial, Trial]]) -> list[str]:
    """Return how a graded result (nats, a ratio) of the same probes changed; [] where not."""
    changes = [
        two.value - one.value
        for one, two in shared
        if one.value is not None and two.value is not None and not one.arm
    ]
    if not any(changes):
        return []
    average, p_value = sum(changes) / len(changes), signed_ranks_p(changes)
    counts = f"{average:+.3g} on average over {len(changes)}"
    return [f"  same probes, graded: {counts} (Wilcoxon p {p_value:.3g})"]


def _fails(finding: Finding | None) -> bool:
    return finding is not None and finding.outcome is Outcome.FAIL
