"""One microtest: pytest in a process of its own, and what it found."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from fidelity.errors import ConfigError
from fidelity.microtests.results import PatchReport
from fidelity.microtests.seen import PROPERTY
from fidelity.microtests.verdict_files import read
from fidelity.words import Outcome, PatchVerdict

COMMAND = ("{python}", "-m", "pytest")
_INCONCLUSIVE = "fidelity.errors.Inconclusive"
_COLLECTED_NOTHING = 5
_OPEN = 2


class Effect(msgspec.Struct, frozen=True):
    """A measured figure and the largest that is accepted."""

    value: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrotestResult:
    """What a microtest found.

    Attributes:
        outcome: fail when a test failed; inconclusive when a patch was inert or undecided, by a
            test or by the verdict that it wrote down, or everything was skipped; error when it
            could not be run.
        reason: one sentence; "" for a pass.
        passed: how many tests passed, by name without parameters.
        effects: of `assert_patch`: check -> its worst value and limit.
        duration_s: of the process.
    """

    outcome: Outcome
    reason: str = ""
    passed: Counter[str] = field(default_factory=Counter)
    effects: Mapping[str, Effect] = field(default_factory=dict)
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """How microtests are run.

    Attributes:
        command: of pytest; `{python}` is this interpreter.
        arguments: further ones, for every microtest.
        folder: for JUnit files and logs.
        timeout_s: of one microtest; None: no limit.
    """

    command: Sequence[str]
    arguments: Sequence[str]
    folder: Path
    timeout_s: float | None

    def run(self, microtest: str, root: Path, name: str) -> MicrotestResult:
        """Run one file from the folder `root`; `name` is that of its JUnit file and log.

        Raises:
            ConfigError: the command cannot be started.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        junit, log = self.folder / f"{name}.xml", self.folder / f"{name}.log"
        junit.unlink(missing_ok=True)
        command = [word.replace("{python}", sys.executable) for word in self.command or COMMAND]
        command += [f"./{microtest}", f"--junitxml={junit}", "-p", "no:cacheprovider", "-q"]
        began = time.monotonic()
        verdicts = self.folder / name / "patches"
        for old in verdicts.glob("*.json"):
            old.unlink()
        command.append(f"--fidelity-run-dir={self.folder / name}")  # for verdicts of its own
        code = self._wait([*command, *self.arguments], root, log)
        took = time.monotonic() - began
        if code is None:
            why = f"{microtest} took more than {self.timeout_s:g} s and was ended"
            return MicrotestResult(outcome=Outcome.ERROR, reason=why, duration_s=took)
        found = _result(code, junit, log, microtest, took)
        undecided = _undecided(verdicts)
        if undecided and (found.outcome is Outcome.PASS or code == _OPEN):
            return replace(found, outcome=Outcome.INCONCLUSIVE, reason=undecided)
        return found

    def _wait(self, command: Sequence[str], root: Path, log: Path) -> int | None:
        """Return the exit code; None when it took too long."""
        with log.open("wb") as out:
            try:
                process = subprocess.Popen(
                    command,
                    cwd=root,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(f"{command[0]} cannot be run: {error}") from None
            try:
                return process.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                return None
            finally:  # also on Ctrl-C: what it started goes with it
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _result(code: int, junit: Path, log: Path, microtest: str, took: float) -> MicrotestResult:
    try:
        cases = list(ET.parse(junit).iter("testcase"))  # noqa: S314 - pytest's own file
    except (OSError, ET.ParseError):
        cases = []
    passed = Counter(_name(case) for case in cases if not _troubles(case))
    outcome, reason = _judged(code, cases, passed, log, microtest)
    return MicrotestResult(
        outcome=outcome,
        reason=reason,
        passed=passed,
        effects=_effects(cases),
        duration_s=took,
    )


def _undecided(folder: Path) -> str:
    """Say which verdict that a microtest wrote down exonerates nothing; "" where all do."""
    for report in map(read, sorted(folder.glob("*.json"))):
        if report.verdict is not PatchVerdict.EXONERATED:
            return f"{report.title} is {report.verdict}: {_short(report.reason)}"
    return ""


def _troubles(case: ET.Element) -> list[ET.Element]:
    return [part for part in case if part.tag in {"failure", "error", "skipped"}]


def _name(case: ET.Element) -> str:
    return f"{case.get('classname')}.{case.get('name', '').partition('[')[0]}"


def _judged(
    code: int, cases: Sequence[ET.Element], passed: Counter[str], log: Path, microtest: str
) -> tuple[Outcome, str]:
    failed = [(c, part) for c in cases for part in _troubles(c) if part.tag == "failure"]
    firm = [found for found in failed if _INCONCLUSIVE not in (found[1].get("message") or "")]
    if code == 1 and (firm or failed):
        case, part = (firm or failed)[0]
        more = f" ({len(failed)} of {len(cases)} tests)" if len(cases) > 1 else ""
        words = f"{case.get('name')}{more}: {_short(part.get('message') or '')}"
        return (Outcome.FAIL if firm else Outcome.INCONCLUSIVE), words
    broken = [(c, part) for c in cases for part in _troubles(c) if part.tag == "error"]
    if broken:
        case, part = broken[0]
        what = _short((part.text or part.get("message") or "").strip().rpartition("\nE ")[2])
        return Outcome.ERROR, f"{microtest} could not be run: {case.get('name')}: {what}"
    if code == _COLLECTED_NOTHING:
        return Outcome.FAIL, f"{microtest} holds no test that runs: the patch has no microtest"
    if code != 0:
        return Outcome.ERROR, f"{microtest} ended with exit code {code}: {_last_line(log)}"
    if not passed:
        skips = [_short(part.get("message") or "") for c in cases for part in _troubles(c)]
        why = f": {skips[0]}" if skips else ""
        words = f"{microtest}: all {len(cases)} tests were skipped, nothing was measured{why}"
        return Outcome.INCONCLUSIVE, words
    return Outcome.PASS, ""


def _short(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:400]


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return _short(lines[-1]) if lines else f"no output; {log}"


def _effects(cases: Sequence[ET.Element]) -> dict[str, Effect]:
    """Return the worst of each check over all reports of `assert_patch`."""
    found: dict[str, Effect] = {}
    for case in cases:
        for entry in case.iter("property"):
            if entry.get("name") != PROPERTY:
                continue
            report = msgspec.json.decode(entry.get("value") or "", type=PatchReport)
            for check in report.checks:
                if not check.limit:
                    continue  # a figure without a limit, or a plain yes or no
                name = f"{case.get('name')}: {check.question}: {check.name}"
                effect = Effect(check.value, check.limit)
                known = found.get(name)
                if known is None or effect.value / effect.limit > known.value / known.limit:
                    found[name] = effect
    return found
