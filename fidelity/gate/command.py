"""`fidelity gate`: maps a diff to patches, runs what they call for, says whether it may merge."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fidelity.config.config_file import FILE_NAME, ConfigFile, read_config
from fidelity.config.settings import GateSettings, resolve_gate
from fidelity.errors import ConfigError, HarnessError
from fidelity.gate import baseline as stored
from fidelity.gate.claims import claim_items
from fidelity.gate.held import Held
from fidelity.gate.items import Item, exit_code, shown
from fidelity.gate.mapping import Touched, strays, touched_patches
from fidelity.gate.microtest_run import MicrotestResult, Runner
from fidelity.gate.order import Order, microtest_arguments, run_flags
from fidelity.gate.repository import Change, Repository
from fidelity.gate.rules import rule_changes, rule_items
from fidelity.gate.sarif import write_sarif
from fidelity.gate.strictness import Strictness
from fidelity.gate.suites_run import Switched, deployment_of, run_suites, suites_of, switched_on
from fidelity.gate.summary import Told, markdown, terminal_lines, write_junit
from fidelity.records import Finding
from fidelity.words import Outcome


@dataclass(slots=True)
class _Found:
    items: list[Item] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    microtests: dict[str, MicrotestResult] = field(default_factory=dict)
    runs: dict[str, Sequence[Finding]] = field(default_factory=dict)


def main(flags: Mapping[str, object], order: Order) -> int:
    """Run the gate and return its exit code: 1 for a fail, 2 for undecided, else 0.

    Raises:
        ConfigError: nothing says what to compare with, or what is named is not there.
    """
    settings = resolve_gate(flags)
    gate = Gate(settings, flags, order)
    if not gate.folder.exists():  # a new folder is no part of the next diff
        gate.folder.mkdir(parents=True)
        (gate.folder / ".gitignore").write_text("*\n", encoding="utf-8")
    told = gate.run()
    _write(told, settings, gate.folder, gate.prefix)
    return exit_code(told.items)


class Gate:
    """One run of the gate."""

    def __init__(self, settings: GateSettings, flags: Mapping[str, object], order: Order) -> None:
        if settings.file.path is None:
            raise ConfigError(f"no {FILE_NAME} here or above: the gate reads its [[patch]] entries")
        self.config: ConfigFile = settings.file
        self.root = settings.file.path.resolve().parent
        ref = order.base or self.config.gate.base
        if not ref:
            raise ConfigError("nothing to compare with: give --base REF, or `base` in [gate]")
        if not order.base and ref.partition("~")[0].partition("^")[0].partition("@{")[0] in _JUDGED:
            raise ConfigError(
                f"[gate] base is {ref!r}, which follows the commit that is judged: name a branch"
            )
        known = self.config.patches
        unknown = [n for n in order.accept_loosened if n not in known and not _is_path(n)]
        if unknown:
            raise ConfigError(f"--accept-loosened: there is no [[patch]] {unknown[0]!r}")
        self._settings, self._flags, self._order = settings, flags, order
        self._repository = Repository.compared_with(self.root, ref)
        self.prefix = self._repository.prefix()
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        self.folder = (settings.run_dir or self.root / "runs" / f"gate-{stamp}").resolve()
        self._held = Held(order, self.config.gate.baseline)
        self._margin = self.config.gate.effect_margin
        self._command = self.config.gate.microtest_command
        self._ruled: frozenset[str] = frozenset()

    def run(self) -> Told:
        """Answer every question of the gate."""
        found = _Found()
        changes = self._repository.changes()
        was = self._at_base(found)
        bent = self._rules(changes, was, found)
        touched = touched_patches(changes, self.config, was, bent)
        found.items += strays(changes, self._repository.files(), self.config, was)
        kept = self._held.read() if touched else stored.Baseline()
        for each in touched:
            print(
                f"gate: {each.patch.name}: {shown(each.patch.microtest) or 'no microtest'}",
                flush=True,
            )
            self._microtest(each, kept, found)
        self._suites(touched, kept, found)
        if touched:
            head = self._repository.head()
            found.notes += self._held.write(head, kept, found.microtests, found.runs)
        return Told(
            ref=self._repository.ref,
            base=self._repository.base,
            files=[shown(change.path) for change in changes],
            patches=[each.patch.name for each in touched],
            items=found.items,
            notes=found.notes,
        )

    def _rules(
        self, changes: Sequence[Change], was: ConfigFile | None, found: _Found
    ) -> list[Change]:
        """Hold the diff against the rules; return the changes that bend every microtest."""
        configs = [config for config in (self.config, was) if config is not None]
        microtests = [p.microtest for c in configs for p in c.patches.values() if p.microtest]
        rules = rule_changes(self._repository, changes, self._config_name, microtests)
        bent = [rule.change for rule in rules if rule.change.path == rule.name]
        self._ruled = frozenset(change.path for change in bent)
        accepted = self._order.accept_rule
        rules += self._held.bent_by(self._repository, changes, accepted)
        unknown = set(accepted) - {rule.name for rule in rules}
        if unknown:
            found.notes.append(f"--accept-rule: unchanged: {', '.join(sorted(unknown))}")
        found.items += rule_items(rules, accepted)
        if was is not None and "gate.microtest_command" not in accepted:
            self._command = was.gate.microtest_command
        return bent

    def _at_base(self, found: _Found) -> ConfigFile | None:
        """Return fidelity.toml as it was; None where there was none that can be read."""
        text = self._repository.at_base(self._config_name)
        if text is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FILE_NAME
            path.write_bytes(text)
            try:
                return read_config(path)
            except ConfigError as error:
                what = f"{FILE_NAME} of {self._repository.ref} cannot be read"
                found.notes.append(f"{what}, so every patch counts as new: {error}")
                return None

    @property
    def _config_name(self) -> str:
        return self.config.path.name if self.config.path else FILE_NAME

    def _microtest(self, touched: Touched, kept: stored.Baseline, found: _Found) -> None:
        patch, change = touched.patch, touched.change
        file = self.root / patch.microtest
        if not patch.microtest or not file.is_file():
            named = f": {shown(patch.microtest)} is not there" if patch.microtest else ""
            found.items.append(
                Item(
                    rule="patch-without-microtest",
                    subject=patch.name,
                    outcome=Outcome.FAIL,
                    message=f"the patch {patch.name} has no microtest{named}",
                    path=change.path,
                    line=change.line,
                )
            )
            return
        runner = self._runner()
        result = runner.run(patch.microtest, self.root, patch.name)
        found.microtests[patch.name] = result
        found.items.append(
            Item(
                rule="microtest",
                subject=patch.name,
                outcome=result.outcome,
                message=(
                    f"the patch {patch.name} does not pass its microtest: {result.reason}"
                    if result.reason
                    else f"{result.passed.total()} tests passed"
                ),
                path=change.path,
                line=change.line,
                duration_s=result.duration_s,
            )
        )
        accepted = self._order.accept_loosened
        strictness = Strictness(self._repository, runner, accepted, self._ruled)
        found.items += strictness.judge(touched, result)
        old = kept.microtests.get(patch.name)
        found.items += stored.compare_microtest(touched, result, old, self._margin)

    def _runner(self) -> Runner:
        return Runner(
            command=self._command,
            arguments=["--fidelity-note-patches", *microtest_arguments(self._flags)],
            folder=self.folder / "microtests",
            timeout_s=self.config.gate.microtest_s,
        )

    def _suites(self, touched: Sequence[Touched], kept: stored.Baseline, found: _Found) -> None:
        if not touched:
            return
        patches = [each.patch for each in touched]
        past = [each.was for each in touched if each.was is not None]
        suites = suites_of([*patches, *past], self.config.gate.suites)
        url = self._flags.get("base_url")
        name = (
            None if url else str(self._flags.get("deployment") or self.config.gate.deployment or "")
        )
        if self._order.microtests_only or not (url or name):
            why = "--microtests-only" if self._order.microtests_only else "no deployment is named"
            found.notes.append(f"suites were not run ({why}): {', '.join(suites)}")
            return
        if any(item.outcome is not Outcome.PASS for item in found.items):
            found.notes.append(
                f"suites were not run, since this is red already: {', '.join(suites)}"
            )
            return
        try:
            self._run_suites(touched, suites, name, kept, found)
        except HarnessError as error:
            found.items.append(
                Item(
                    rule="claim",
                    subject="suites",
                    outcome=Outcome.ERROR,
                    message=str(error),
                    path=touched[0].change.path,
                    line=touched[0].change.line,
                )
            )

    def _run_suites(
        self,
        touched: Sequence[Touched],
        suites: Sequence[str],
        name: str | None,
        kept: stored.Baseline,
        found: _Found,
    ) -> None:
        target = deployment_of(self.config, name)
        patches = [each.patch for each in touched]
        switched = (
            switched_on(patches, target, self.config.gate.values) if target else Switched(env={})
        )
        flags = dict(self._flags)
        if name:
            flags["deployment"] = name
        flags.setdefault("budget", str(self.config.gate.budget or "quick"))
        ran = run_suites(
            suites,
            [*run_flags(flags), f"--config={self.config.path}"],
            switched,
            folder=self.folder / "suites",
            root=self.root,
            environ=self._settings.environ,
        )
        found.notes += switched.notes
        key = f"{name or flags.get('base_url')}, {flags['budget']}"
        found.runs[key] = ran.findings
        before = kept.claims.get(key, {})
        found.items += claim_items(ran, touched, suites, before, self._margin)


_JUDGED = ("HEAD", "@", "")
"""What a base in fidelity.toml must not begin with: each commit would be its own base."""


def _is_path(name: str) -> bool:
    """Tell the name of a file from that of a patch."""
    return "/" in name or name.endswith(".py")


def _write(told: Told, settings: GateSettings, folder: Path, prefix: str) -> None:
    write_junit(folder / "gate-junit.xml", told.items)
    write_sarif(folder / "gate.sarif", told.items, prefix)
    text = markdown(told)
    (folder / "gate.md").write_text(text, encoding="utf-8")
    if settings.step_summary is not None:
        with settings.step_summary.open("a", encoding="utf-8") as file:
            file.write(text)
    print("\n".join(terminal_lines(told)))
    print(f"written: {folder}")
