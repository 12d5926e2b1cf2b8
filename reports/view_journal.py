"""The records of one run, sorted by kind: what every part of the view model starts from."""

from collections.abc import Iterable
from dataclasses import dataclass

from fidelity.records import (
    AnyRecord,
    Control,
    Finding,
    Manifest,
    PatchState,
    Trial,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One run. Of records that a resumed run wrote twice, the last one counts."""

    manifests: tuple[Manifest, ...]
    trials: tuple[Trial, ...]
    controls: tuple[Control, ...]
    findings: tuple[Finding, ...]
    """The last of each claim, in the order of the plan."""
    patches: tuple[PatchState, ...]
    verdict: Verdict | None
    """None when the run was killed, or went on after an earlier verdict."""

    last_at: str
    """When the last record was written."""

    @property
    def manifest(self) -> Manifest | None:
        """The record that opened the run."""
        return self.manifests[0] if self.manifests else None

    @property
    def unreached(self) -> tuple[str, ...]:
        """Planned claims without a finding, in the order of the plan."""
        reached = {finding.claim for finding in self.findings}
        return tuple(claim for claim in self.planned if claim not in reached)

    @property
    def planned(self) -> tuple[str, ...]:
        """Ids of all claims of the plan."""
        return self.manifest.planned_claims if self.manifest else ()

    @property
    def partial(self) -> bool:
        """True when the run did not come to its end."""
        return self.verdict is None or self.verdict.interrupted

    @property
    def folder(self) -> str:
        """The run folder as the command line names it."""
        if self.manifest is None:
            return "runs/latest"
        chosen = {setting.name: setting.value for setting in self.manifest.settings}
        named = chosen.get("run_dir", "")
        return named if named not in {"", "None"} else f"runs/{self.manifest.run_id}"

    def trials_of(self, finding: Finding) -> tuple[Trial, ...]:
        """Return the trials behind a finding, or all of its claim when it names none."""
        named = set(finding.trials)
        if named:
            return tuple(trial for trial in self.trials if trial.id in named)
        return tuple(trial for trial in self.trials if trial.claim == finding.claim)

    @property
    def control_trials(self) -> frozenset[str]:
        """Ids of trials whose outcome was known beforehand."""
        return frozenset(name for control in self.controls for name in control.trials)


def sort_journal(records: Iterable[AnyRecord]) -> Journal:
    """Return the records of a run by kind."""
    manifests: list[Manifest] = []
    trials: dict[str, Trial] = {}
    controls: dict[tuple[str, str, str], Control] = {}
    findings: dict[str, Finding] = {}
    patches: dict[str, PatchState] = {}
    verdict: Verdict | None = None
    last_at = ""
    for record in records:
        last_at = record.at or last_at
        match record:
            case Manifest():
                manifests.append(record)
            case Trial():
                trials[record.id] = record
                verdict = None  # the run went on: what an earlier end said no longer holds
            case Control():
                controls[record.claim, record.control, record.what] = record
            case Finding():
                findings[record.claim] = record
                verdict = None
            case PatchState():
                patches[record.name] = record
            case Verdict():
                verdict = record
    planned = manifests[0].planned_claims if manifests else ()
    place = {claim: number for number, claim in enumerate(planned)}
    ordered = sorted(findings.values(), key=lambda finding: place.get(finding.claim, len(place)))
    return Journal(
        manifests=tuple(manifests),
        trials=_last_attempts(trials.values()),
        controls=tuple(controls.values()),
        findings=tuple(ordered),
        patches=tuple(patches.values()),
        verdict=verdict,
        last_at=last_at,
    )


def _last_attempts(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials without those that a resumed run asked again."""
    kept: dict[tuple[str, str, int, str], Trial] = {}
    for trial in trials:
        place = (trial.claim, trial.arm, trial.stage, trial.key or trial.id)
        held = kept.get(place)
        if held is None or trial.index >= held.index:
            kept[place] = trial
    return tuple(kept.values())
