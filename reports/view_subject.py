"""What was measured: the deployment, the run, its patches, capabilities and settings."""

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fidelity.records import CapabilityState, Manifest, PatchState, Setting
from reports.view_journal import Journal
from reports.view_text import duration, figure, joined, one_line, plural, thousands, when


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of "what was measured"."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRow:
    """One patch; `flag` says what is odd about it, `tone` how it is shown."""

    name: str
    state: str
    calls: str
    flag: str
    tone: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityRow:
    """One capability of the server and how to get it where it is absent."""

    name: str
    word: str
    tone: str
    detail: str
    unlock: str
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The deployment and the run."""

    facts: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    patches: tuple[PatchRow, ...]
    patch_summary: str
    inert: str
    """That patches are on and never ran, as a sentence; "" when none is."""
    absent: tuple[CapabilityRow, ...]
    present: tuple[CapabilityRow, ...]
    capability_summary: str
    chosen: tuple[Setting, ...]
    """Settings that somebody gave, or that discovery found out."""
    defaults: tuple[Setting, ...]
    settings_summary: str
    command: str
    launch_command: str
    epochs: str


def subject_of(journal: Journal) -> Subject:
    """Return what was measured; a run without a manifest has nothing but its patches."""
    manifest = journal.manifest
    # a run that was interrupted says how they were when it began
    states = journal.patches or (manifest.patches if manifest else ())
    patches = tuple(_patch(patch) for patch in sorted(states, key=_patch_order))
    capabilities = tuple(_capability(state) for state in manifest.capabilities) if manifest else ()
    settings = _settings(manifest) if manifest else ()
    return Subject(
        facts=_facts(journal, manifest) if manifest else (),
        versions=_versions(manifest) if manifest else (),
        patches=patches,
        patch_summary=_patch_summary(patches),
        inert=_inert(journal),
        absent=tuple(row for row in capabilities if row.tone != "pass"),
        present=tuple(row for row in capabilities if row.tone == "pass"),
        capability_summary=_capability_summary(capabilities),
        chosen=tuple(setting for setting in settings if setting.origin != "default"),
        defaults=tuple(setting for setting in settings if setting.origin == "default"),
        settings_summary=plural(len(settings), "setting") if settings else "",
        command=shlex.join(manifest.command) if manifest else "",
        launch_command=shlex.join(manifest.launch_command) if manifest else "",
        epochs=_epochs(journal),
    )


def _facts(journal: Journal, manifest: Manifest) -> tuple[Fact, ...]:
    launched = "started by the harness" if manifest.launched else "a running server"
    prompt, generated, requests = _totals(journal)
    verdict = journal.verdict
    took = duration(verdict.duration_s) if verdict else _so_far(journal, manifest)
    speed = ""
    if verdict and verdict.duration_s > 0:
        speed = f"{(prompt + generated) / verdict.duration_s:,.0f} tokens a second overall"
    return (
        Fact(name="Deployment", value=manifest.deployment, note=launched),
        Fact(name="Model", value=manifest.model, note=manifest.base_url),
        *(
            Fact(
                name=f"Role {role.name}",
                value=role.url,
                note=role.host or ("started by the harness" if role.launched else "running"),
            )
            for role in manifest.roles
        ),
        Fact(name="Budget", value=manifest.budget.value, note=f"seed {manifest.seed}"),
        Fact(name="Time", value=took, note=f"began {when(manifest.at)}"),
        Fact(
            name="Tokens",
            value=f"{prompt:,} in, {generated:,} out",
            note=speed,
        ),
        Fact(
            name="Trials",
            value=f"{len(journal.trials):,}",
            note=f"{plural(requests, 'request')}",
        ),
        Fact(
            name="Git commit",
            value=_commit(manifest.git_commit),
            note=f"run {manifest.run_id}",
        ),
    )


def _commit(text: str) -> str:
    """Return a commit short enough to read; a checkout with changes says so."""
    commit, _, dirty = text.partition("-")
    if not commit:
        return "none recorded"
    return f"{commit[:12]}, with uncommitted changes" if dirty else commit[:12]


def _so_far(journal: Journal, manifest: Manifest) -> str:
    """Return how long a run without a verdict lasted, by the times of its records."""
    try:
        began = datetime.fromisoformat(manifest.at)
        ended = datetime.fromisoformat(journal.last_at)
        return f"{duration((ended - began).total_seconds())}, then cut off"
    except (ValueError, TypeError):
        return "not recorded"


def _totals(journal: Journal) -> tuple[int, int, int]:
    """Return prompt tokens, generated tokens and requests: of the verdict, else of the trials."""
    if journal.verdict and journal.verdict.requests:
        verdict = journal.verdict
        return verdict.prompt_tokens, verdict.completion_tokens, verdict.requests
    exchanges = [exchange for trial in journal.trials for exchange in trial.exchanges]
    return (
        sum(exchange.prompt_tokens or 0 for exchange in exchanges),
        sum(exchange.completion_tokens or 0 for exchange in exchanges),
        len(exchanges),
    )


def _versions(manifest: Manifest) -> tuple[Fact, ...]:
    facts = [Fact(name=name, value=text) for name, text in sorted(manifest.versions.items())]
    for name, value in sorted(manifest.server_info.items()):
        if not isinstance(value, dict | list) and len(facts) < 60:
            facts.append(Fact(name=f"server: {one_line(name, 60)}", value=_short(value)))
    return tuple(facts)


def _short(value: Any) -> str:
    return figure(value) if isinstance(value, float) else one_line(str(value), 120)


def _epochs(journal: Journal) -> str:
    if len(journal.manifests) < 2:
        return ""
    times = ", ".join(when(manifest.at) for manifest in journal.manifests[1:])
    return (
        f"The run has {len(journal.manifests)} epochs: the server was restarted or changed, or the "
        f"run was resumed ({times}). Arms are never mixed across epochs."
    )


def _patch_order(patch: PatchState) -> tuple[bool, str]:
    return patch.state != "on", patch.name


def _patch(patch: PatchState) -> PatchRow:
    on = patch.state == "on"
    flag, tone = "", "pass" if on else "na"
    if patch.inert:
        flag, tone = "inert: installed, never ran", "inconclusive"
    elif on and patch.calls is None and not patch.proof:
        flag, tone = "no call count: not shown to have run", "inconclusive"
    elif not on and patch.calls:
        flag, tone = "ran although it is not on", "fail"
    return PatchRow(
        name=patch.name,
        state=patch.state,
        calls=thousands(patch.calls),
        flag=flag,
        tone=tone,
        detail=" · ".join(part for part in (patch.phase, patch.detail) if part),
    )


def _patch_summary(patches: tuple[PatchRow, ...]) -> str:
    if not patches:
        return ""
    on = sum(row.state == "on" for row in patches)
    inert = sum(row.flag.startswith("inert") for row in patches)
    note = f", {inert} of them inert" if inert else ""
    return f"{on} of {len(patches)} on{note}"


def _inert(journal: Journal) -> str:
    names = [one_line(patch.name, 60) for patch in journal.patches if patch.inert]
    if not names:
        return ""
    are = "is on and was" if len(names) == 1 else "are on and were"
    return f"{joined(names)} {are} never called: this run says nothing of it."


def _capability(state: CapabilityState) -> CapabilityRow:
    if state.present:
        word, tone = "present", "pass"
    elif state.expected:
        word, tone = "absent, but expected", "error"
    else:
        word, tone = "absent", "na"
    return CapabilityRow(
        name=state.name,
        word=word,
        tone=tone,
        detail=state.detail,
        unlock=state.unlock,
        expected=state.expected,
    )


def _capability_summary(rows: tuple[CapabilityRow, ...]) -> str:
    if not rows:
        return ""
    return f"{sum(row.word == 'present' for row in rows)} of {len(rows)} present"


_ORIGIN_ORDER = ("flag", "environment", "file", "discovered", "default")


def _settings(manifest: Manifest) -> tuple[Setting, ...]:
    """Return the settings, those that somebody chose first."""

    def order(setting: Setting) -> tuple[int, str]:
        word = setting.origin.split(" ")[0].split(":")[0]
        known = _ORIGIN_ORDER.index(word) if word in _ORIGIN_ORDER else len(_ORIGIN_ORDER) - 2
        return known, setting.name

    return tuple(sorted(manifest.settings, key=order))
