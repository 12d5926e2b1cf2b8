"""What a terminal shows at the end of a run."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from fidelity.records import Finding
from fidelity.verdict import Judgement
from fidelity.words import Outcome

REASON_CHARS = 400
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str, limit: int = REASON_CHARS) -> str:
    """Return text of a server without control characters, on one line, bounded."""
    text = _CONTROL.sub(" ", text)
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def summary_lines(
    judgement: Judgement,
    findings: Sequence[Finding],
    *,
    holm: Sequence[str],
    folder: Path,
    command: Sequence[str],
) -> list[str]:
    """Return the verdict, the claims that are not a pass, and where to go from here."""
    lines = [printable(judgement.sentence, 1_000), ""]
    open_claims = [finding for finding in findings if finding.outcome is not Outcome.PASS]
    for finding in open_claims:
        lines.append(f"{finding.outcome.upper().replace('_', ' '):<15}{printable(finding.claim)}")
        lines.append(f"               {printable(finding.title)}: {printable(finding.reason)}")
    if any(finding.outcome is Outcome.FAIL for finding in findings):
        lines += ["", *(printable(line) for line in holm)]
    if open_claims:
        lines.append("")
    report = folder / "report.html"
    lines.append(f"report: {report}" if report.exists() else f"journal: {folder / 'run.jsonl'}")
    lines.append(f"repeat: {shlex.join(command)}")
    if judgement.counts.get("not_run") or judgement.counts.get("error"):
        lines.append(f"resume: {shlex.join(_resuming(command, folder))}")
    return lines


def without_run_folder(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that repeats a run: elsewhere, since a folder holds one run."""
    prefix = _prefix(command)
    kept: list[str] = []
    skip = False
    for word in command:
        if skip or word == f"{prefix}resume" or word.startswith(f"{prefix}run-dir="):
            skip = False
        elif word == f"{prefix}run-dir":
            skip = True
        else:
            kept.append(word)
    return tuple(kept)


def _prefix(command: Sequence[str]) -> str:
    return "--" if command and command[0] == "fidelity" else "--fidelity-"


def _resuming(command: Sequence[str], folder: Path) -> list[str]:
    prefix = _prefix(command)
    return [*command, f"{prefix}resume", f"{prefix}run-dir={folder}"]
