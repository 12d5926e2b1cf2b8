"""The suites that changed patches can affect: one `fidelity run` with these patches on."""

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fidelity.config.config_file import ConfigFile
from fidelity.config.deployment_spec import DeploymentSpec
from fidelity.config.patch_spec import PatchSpec, split_value
from fidelity.errors import JournalError
from fidelity.records import Finding, Manifest, PatchState, Verdict, read_journal
from fidelity.runs.journal import FILE_NAME

ALL = "all"
BY_PHASE: Mapping[str, tuple[str, ...]] = {
    "prefill": (
        "needle_sweep",
        "multi_turn_recall",
        "context_gain",
        "twins_cache",
        "twins_shapes",
        "twins_batch",
    ),
    "decode": (
        "needle_sweep",
        "long_generation",
        "continuation",
        "abort_then_followup",
        "twins_phases",
        "twins_batch",
    ),
    "encoding": ("plumbing", "multi_turn_recall", "continuation", "twins_shapes"),
}
"""Suites that see a patch of this phase, where its entry names none; other phases: all of them."""


def suites_of(patches: Iterable[PatchSpec], more: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the suites to run, once each; (ALL,) when a patch can affect any."""
    named: list[str] = []
    for patch in patches:
        named += patch.suites or BY_PHASE.get(patch.phase, (ALL,))
    if not named:
        return ()
    return (ALL,) if ALL in named else tuple(dict.fromkeys((*named, *more)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """How patches are switched on at launch, and why some could not be."""

    arguments: tuple[str, ...] = ()
    env: Mapping[str, str]
    notes: tuple[str, ...] = ()


def switched_on(
    patches: Sequence[PatchSpec], target: DeploymentSpec, values: Mapping[str, str]
) -> Switched:
    """Return what switches patches on that the deployment does not have on by itself.

    Args:
        patches: those that changed.
        target: the deployment.
        values: VALUE by the name of a patch that takes one.
    """
    servers = (target, *target.roles.values())
    on = {split_value(text)[0] for server in servers for text in server.patches or ()}
    arguments: list[str] = []
    env: dict[str, str] = {}
    notes = []
    for patch in patches:
        if patch.name in on or patch.on.empty:
            continue
        words = (*patch.on.flags, *patch.on.env.values())
        why = ""
        if not target.launch:
            why = "is not launched here" if not target.roles else "has roles"
        elif patch.name not in values and any("{value}" in word for word in words):
            why = "does not say which VALUE it has"
        if why:
            notes.append(
                f"{patch.name} was not switched on: the deployment {target.name} {why}; name it in"
                " its `patches`, or its VALUE in [gate.values]"
            )
            continue
        value = values.get(patch.name, "")
        arguments += [word.replace("{value}", value) for word in patch.on.flags]
        env |= {key: word.replace("{value}", value) for key, word in patch.on.env.items()}
    return Switched(arguments=tuple(arguments), env=env, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitesResult:
    """What a run left: the last finding of each claim, and the states of patches."""

    findings: tuple[Finding, ...]
    states: Mapping[str, PatchState]
    exit_code: int
    ended: bool
    """False for a run that has no verdict: it crashed."""


def run_suites(
    suites: Sequence[str],
    flags: Sequence[str],
    switched: Switched,
    *,
    folder: Path,
    root: Path,
    environ: Mapping[str, str],
) -> SuitesResult:
    """Run the suites in a process of their own; their output goes where the gate's does.

    Raises:
        JournalError: the run left no journal.
    """
    if (folder / FILE_NAME).exists():
        raise JournalError(f"{folder} holds a run already: give the gate another --run-dir")
    command = [sys.executable, "-m", "fidelity.cli", "run"]
    command += [name for name in suites if name != ALL]
    command += [*flags, f"--run-dir={folder}"]
    command += [f"--launch-arg={word}" for word in switched.arguments]
    made = subprocess.run(command, cwd=root, env={**environ, **switched.env}, check=False)
    if not (folder / FILE_NAME).exists():
        raise JournalError(f"the suites ended with exit code {made.returncode} and left no run")
    findings: dict[str, Finding] = {}
    states: dict[str, PatchState] = {}
    ended = False
    for record in read_journal(folder / FILE_NAME):
        if isinstance(record, Finding):
            findings[record.claim] = record
        elif isinstance(record, PatchState):
            states[record.name] = record
        elif isinstance(record, Manifest):
            states |= {state.name: state for state in record.patches}
        elif isinstance(record, Verdict):
            ended = True
    return SuitesResult(
        findings=tuple(findings.values()), states=states, exit_code=made.returncode, ended=ended
    )


def deployment_of(config: ConfigFile, name: str | None) -> DeploymentSpec | None:
    """Return the deployment that the gate measures; None when nobody names one."""
    return config.deployment(name) if name else None
