"""What a terminal shows at the end of a run."""

import re
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fidelity.records import Finding, PatchState
from fidelity.verdicts.parts import WORST_FIRST, badness
from fidelity.verdicts.verdict import Judgement
from fidelity.words import Outcome

REASON_CHARS = 600
COLUMNS = 100
INDENT = 15
MOST_NAMED = 5
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
    patches: Sequence[PatchState] = (),
    width: int = COLUMNS,
) -> list[str]:
    """Return the verdict, the claims that are not a pass, and where to go from here.

    Text is wrapped at `width`; paths and commands stay on one line, to be copied.
    """
    lines = [*_wrapped(printable(judgement.sentence, 1_000), width), ""]
    open_claims = [finding for finding in findings if finding.outcome is not Outcome.PASS]
    for group in _groups(open_claims):
        lines += _open_claims(group, width)
    if any(finding.outcome is Outcome.FAIL for finding in findings):
        lines += ["", *(line for text in holm for line in _wrapped(printable(text), width, hang=4))]
    if open_claims:
        lines.append("")
    lines += [line for text in _inert(patches) for line in _wrapped(text, width)]
    report = folder / "report.html"
    lines.append(f"report: {report}" if report.exists() else f"journal: {folder / 'run.jsonl'}")
    lines.append(f"repeat: {shlex.join(command)}")
    if judgement.counts.get("not_run") or judgement.counts.get("error"):
        lines.append(f"resume: {shlex.join(_resuming(command, folder))}")
    return lines


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Put claims together that are open for one reason, worst first: a dead server is told once."""
    groups: dict[tuple[Outcome, str], list[Finding]] = {}
    for finding in sorted(findings, key=badness):
        groups.setdefault((finding.outcome, finding.reason), []).append(finding)
    return list(groups.values())


def _open_claims(group: Sequence[Finding], width: int) -> list[str]:
    first = group[0]
    label = f"{first.outcome.upper().replace('_', ' '):<{INDENT}}"
    lines = [f"{label}{printable(first.claim)}"]
    lines += [f"{'':<{INDENT}}{printable(finding.claim)}" for finding in group[1:MOST_NAMED]]
    if len(group) > MOST_NAMED:
        lines.append(f"{'':<{INDENT}}and {len(group) - MOST_NAMED} more for the same reason")
    if len(group) == 1:
        lines += _wrapped(printable(first.title), width, indent=INDENT)
    lines += _wrapped(printable(first.reason), width, indent=INDENT)
    if len(group) == 1:
        lines += _open_parts(first, width)
    return lines


def _open_parts(finding: Finding, width: int) -> list[str]:
    """Name the parts that are not a pass, worst first, less the one that the reason tells."""
    parts = [part for part in finding.parts if part.outcome is not Outcome.PASS]
    parts = sorted(
        (part for part in parts if part.reason not in finding.reason),
        key=lambda part: (WORST_FIRST.index(part.outcome), part.k is None),
    )
    shown = [
        f"- {part.outcome.replace('_', ' ')}: {printable(part.title)}"
        + (f": {part.k} of {part.n}" if part.k is not None else "")
        for part in parts[:MOST_NAMED]
    ]
    if len(parts) > MOST_NAMED:
        shown.append(f"- and {len(parts) - MOST_NAMED} more parts")
    return [line for text in shown for line in _wrapped(text, width, indent=INDENT, hang=2)]


def _inert(patches: Sequence[PatchState]) -> list[str]:
    names = [printable(patch.name, 60) for patch in patches if patch.inert]
    if not names:
        return []
    are = "is on and was" if len(names) == 1 else "are on and were"
    shown = ", ".join(names[:MOST_NAMED])
    return [f"inert: {shown} {are} never called: this run says nothing of it"]


def _wrapped(text: str, width: int, *, indent: int = 0, hang: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, indent + 40),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
    )


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
