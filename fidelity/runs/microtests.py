"""`fidelity micro`: pytest on suites/patches in a process of its own, then a run folder of it.

The process runs in the checkout, so that `kernels` there is ours whatever else is installed. It
leaves one file a verdict; this side writes journal, JUnit and report from them.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fidelity.config.options import to_pytest_args
from fidelity.config.settings import MicrotestSettings, resolve_microtests
from fidelity.errors import ConfigError
from fidelity.microtests.findings import (
    claim_of,
    finding_of,
    line_of,
    only_synthetic,
    state_of,
    verdict_of,
)
from fidelity.microtests.results import PatchReport
from fidelity.microtests.verdict_files import expiry, read, save
from fidelity.records import Finding, Manifest, Verdict
from fidelity.runs.journal import Journal, new_run_folder
from fidelity.runs.junit import write_junit
from fidelity.runs.manifest import git_commit, versions
from fidelity.runs.termination import Terminated, Termination
from fidelity.words import PatchVerdict

FOLDER = "patches"
"""Of the verdicts: in the run folder, and beside the runs for those that are kept."""
_RUNS = "runs"
_ORDINARY_ENDS = (0, 1)
_OPEN = 2
_WAIT_S = 20.0
_SHOWN = list(PatchVerdict)[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a person asked for.

    Attributes:
        flags: raw, by field name.
        patches: folder of the microtests; its grandparent is the checkout.
        command: what repeats the run.
    """

    flags: Mapping[str, object]
    patches: Path
    command: tuple[str, ...]


class _Ended(NamedTuple):
    """How the process of the microtests ended; `code` is None where a person stopped it."""

    code: int | None

    @property
    def interrupted(self) -> bool:
        return self.code is None


def main(order: Order, *, render: Callable[[Path], None]) -> int:
    """Examine, print a line a verdict, write the run folder, and return the exit code.

    Args:
        order: what was asked for.
        render: writes the report of a run folder.

    Raises:
        ConfigError: there is no checkout here, or a setting cannot be used.
        JournalError: the run folder cannot be written.
    """
    if not order.patches.is_dir():
        raise ConfigError(
            f"microtests need a checkout of the project: {order.patches} is not there (an installed"
            " package has neither kernels nor their microtests)"
        )
    settings = resolve_microtests(order.flags)
    _check_folders(settings)
    folder, journal = _open(settings)
    began = time.monotonic()
    termination = Termination()
    try:
        journal.append(_manifest(order, settings, folder))
        termination.watch()
        ended = _examine(order, settings, folder)
        termination.hold()
        reports = _reports(folder / FOLDER)
        trouble = _trouble(ended, reports)
        kept = None if settings.run_dir else folder.parent / FOLDER
        findings = [finding_of(r, earlier=_earlier(r, kept)) for r in reports]
        left_out = only_synthetic(reports) if settings.inputs else ""
        verdict = verdict_of(
            reports,
            note=left_out,
            trouble=trouble,
            interrupted=ended.interrupted,
            duration_s=round(time.monotonic() - began, 1),
        )
        _write(journal, reports, findings, verdict)
    finally:
        termination.restore()
        journal.close()
    if kept is not None:
        for report in reports:
            save(report, kept)
    write_junit(folder / "junit.xml", findings, duration_s=verdict.duration_s)
    render(folder)
    _print(reports, findings, verdict, folder)
    return verdict.exit_code


def _check_folders(settings: MicrotestSettings) -> None:
    for name in ("checkpoint", "inputs"):
        path: Path | None = getattr(settings, name)
        if path is not None and not path.is_dir():
            raise ConfigError(f"--{name} {path}: there is no such folder")


def _open(settings: MicrotestSettings) -> tuple[Path, Journal]:
    if settings.run_dir is None:
        folder = new_run_folder(Path.cwd() / _RUNS)
    else:
        folder = settings.run_dir.resolve()
        folder.mkdir(parents=True, exist_ok=True)
    return folder, Journal.create(folder)


def _manifest(order: Order, settings: MicrotestSettings, folder: Path) -> Manifest:
    return Manifest(
        run_id=folder.name,
        deployment=f"patches on {settings.device}",
        base_url="",
        model=str(settings.checkpoint or "the nano checkpoint"),
        command=order.command,
        seed=settings.seed,
        versions=versions(),
        git_commit=git_commit(),
        settings=settings.settings,
    )


def _examine(order: Order, settings: MicrotestSettings, folder: Path) -> _Ended:
    """Run pytest in the checkout; a person's interrupt reaches both processes."""
    root = order.patches.parents[1]
    flags = {
        "patch": settings.patch,
        "checkpoint": _absolute(settings.checkpoint),
        "inputs": _absolute(settings.inputs),
        "device": settings.device,
        "seed": settings.seed,
        "run_dir": folder,
    }
    words = [
        *(sys.executable, "-m", "pytest", str(order.patches), f"--rootdir={root}"),
        *("-c", str(root / "pyproject.toml"), "-p", "no:cacheprovider", "--import-mode=importlib"),
        *("--no-header", "--tb=line", "-qq", *to_pytest_args(flags)),
    ]
    child = subprocess.Popen(words, cwd=root)
    try:
        code = child.wait()
    except KeyboardInterrupt as stop:
        if isinstance(stop, Terminated):  # Ctrl-C has reached both processes, SIGTERM only this one
            child.send_signal(signal.SIGINT)
        try:
            child.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        return _Ended(None)
    return _Ended(code)


def _trouble(ended: _Ended, reports: Sequence[PatchReport]) -> str:
    """Say why a run is not whole; 2 is the code of verdicts that are open, and of trouble."""
    if ended.code is None:
        return "interrupted"
    open_ = {PatchVerdict.UNDECIDED, PatchVerdict.INERT} & {report.verdict for report in reports}
    if ended.code in _ORDINARY_ENDS or (ended.code == _OPEN and open_):
        return ""
    return f"pytest ended with exit code {ended.code}"


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def _reports(folder: Path) -> list[PatchReport]:
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda report: (_SHOWN.index(report.verdict), report.stem))


def _earlier(report: PatchReport, kept: Path | None) -> str:
    """Say what the kept verdict said, and whether it still held."""
    path = None if kept is None else kept / f"{report.stem}.json"
    if path is None or not path.exists():
        return ""
    before = read(path)
    changed = expiry(before.scope, report.scope)
    return f"{before.verdict} on {before.at}; {f'expired: {changed}' if changed else 'in force'}"


def _write(
    journal: Journal, reports: list[PatchReport], findings: list[Finding], verdict: Verdict
) -> None:
    for finding in findings:
        journal.append(finding)
    for name in dict.fromkeys(report.name for report in reports):
        journal.append(state_of([report for report in reports if report.name == name]))
    journal.append(verdict)


def _print(
    reports: list[PatchReport], findings: list[Finding], verdict: Verdict, folder: Path
) -> None:
    earlier = {finding.claim: (finding.profile or {}).get("earlier", "") for finding in findings}
    print()
    for report in reports:
        print(line_of(report))
        if before := earlier[claim_of(report)]:
            print(f"            before: {before}")
    print(f"fidelity: {verdict.sentence}")
    print(f"report: {folder / 'report.html'}")
