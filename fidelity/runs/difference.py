"""`fidelity diff`: two runs claim by claim, and probe by probe where both asked the same.

What was asked of whom comes first: settings, patches, versions and restarts that differ explain
more differences than deployments do.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fidelity.records import (
    AnyRecord,
    Finding,
    Manifest,
    Part,
    PatchState,
    Trial,
    Verdict,
    read_journal,
)
from fidelity.runs.journal import FILE_NAME
from fidelity.runs.resuming import FREE_TO_CHANGE
from fidelity.runs.summary import printable
from fidelity.statistics.paired import mcnemar_exact, signed_ranks_p
from fidelity.verdicts.misses import miss_words
from fidelity.words import Outcome


def difference_lines(before: Path, after: Path) -> tuple[list[str], bool]:
    """Return the differences as text, and whether a claim that did not fail now fails.

    Raises:
        JournalError: one of the folders holds no readable run.
    """
    old, new = (list(read_journal(folder / FILE_NAME)) for folder in (before, after))
    lines = [*_subject("before", old), *_subject("after", new), *_circumstances(old, new)]
    heading = len(lines)
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
    if len(lines) == heading:
        lines.append("no claim and no probe differs")
    return lines, worse


def _subject(name: str, records: Sequence[AnyRecord]) -> list[str]:
    manifests = [record for record in records if isinstance(record, Manifest)]
    if not manifests:
        return [f"{name}: no manifest"]
    first = manifests[0]
    model = printable(first.model)
    asked = f"deployment {first.deployment}, model {model}, seed {first.seed}"
    lines = [f"{name}: {first.run_id}, {asked}, budget {first.budget}"]
    if len(manifests) > 1:
        lines.append(f"  {len(manifests)} epochs: the server restarted, or the run was resumed")
    verdict = next((r for r in reversed(records) if isinstance(r, Verdict)), None)
    said = "cut off, no verdict" if verdict is None else printable(verdict.sentence, 300)
    return [*lines, f"  {said}"]


_NO_MATTER = FREE_TO_CHANGE | {"target"}
"""Settings that change how a run is carried out, not what it asks of whom."""


def _circumstances(old: Sequence[AnyRecord], new: Sequence[AnyRecord]) -> list[str]:
    """Return what differs between the runs beside their results, one line each."""
    pairs = (
        ("setting", _settings),
        ("capability", _capabilities),
        ("version of", _versions),
        ("server", _server),
        ("patch", _patches),
    )
    lines = []
    for kind, read in pairs:
        was, now = read(old), read(new)
        for name in dict.fromkeys((*was, *now)):
            one, two = was.get(name, "absent"), now.get(name, "absent")
            if one != two:
                words = f"{printable(one, 80)!r} -> {printable(two, 80)!r}"
                lines.append(f"{kind} {printable(name, 60)}: {words}")
    most = MOST_CIRCUMSTANCES
    hidden = len(lines) - most
    return lines if hidden <= 0 else [*lines[:most], f"... {hidden} more differ"]


MOST_CIRCUMSTANCES = 30


def _first(records: Iterable[AnyRecord]) -> Manifest | None:
    return next((record for record in records if isinstance(record, Manifest)), None)


def _settings(records: Sequence[AnyRecord]) -> dict[str, str]:
    first = _first(records)
    found = () if first is None else first.settings
    return {s.name: s.value for s in found if s.name not in _NO_MATTER}


def _capabilities(records: Sequence[AnyRecord]) -> dict[str, str]:
    first = _first(records)
    found = () if first is None else first.capabilities
    return {c.name: "present" if c.present else "absent" for c in found}


def _versions(records: Sequence[AnyRecord]) -> dict[str, str]:
    first = _first(records)
    return {} if first is None else {**first.versions, "git commit": first.git_commit}


def _server(records: Sequence[AnyRecord]) -> dict[str, str]:
    """Return what the server tells of itself, less what differs at every start."""
    first = _first(records)
    found = {} if first is None else first.server_info
    plain = (str, int, float, bool)
    return {
        name: str(value)
        for name, value in found.items()
        if isinstance(value, plain) and not any(part in name for part in _AT_EVERY_START)
    }


_AT_EVERY_START = ("port", "time", "host", "pid", "seed", "uptime")


def _patches(records: Sequence[AnyRecord]) -> dict[str, str]:
    """Return the last known state of each patch; a call count tells only whether it ran."""
    found = {}
    for record in records:
        if isinstance(record, PatchState):
            ran = "" if record.calls is None else ", ran" if record.calls else ", never ran"
            found[record.name] = f"{record.state}{ran}"
    return found


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
    if (was.outcome, was.effect, was.ladder, was.blame) == (
        now.outcome,
        now.effect,
        now.ladder,
        now.blame,
    ):
        return ""
    return f"{_told(was)} -> {_told(now)}"


def _told(finding: Finding) -> str:
    words = [str(finding.outcome), _effect(finding)]
    words += [str(finding.ladder)] if finding.ladder else []
    words += [f"blame {finding.blame}"] if finding.blame else []
    return " ".join(word for word in words if word)


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
    bounds = decided.interval
    within = "" if bounds is None else f" [{bounds[0]:.3f}, {bounds[1]:.3f}]"
    counted = "" if decided.n is None else f", n {decided.n}"
    return f"({decided.effect_name} {decided.effect:.3f}{within}{counted})"


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
    losses = [two for one, two in shared if one.ok and not two.ok]
    lost = len(losses)
    gained = sum(bool(two.ok) and not one.ok for one, two in shared)
    graded = _graded_line(shared)
    if not lost + gained:
        return graded
    p_value = mcnemar_exact(lost, gained)
    counts = f"{lost} lost and {gained} gained of {len(shared)}"
    lines = [f"  same probes: {counts} (exact McNemar p {p_value:.3g})"]
    lines += [f"    lost: {printable(miss_words(trial), 300)}" for trial in losses[:MOST_LOSSES]]
    return [*lines, *graded]


MOST_LOSSES = 3


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
