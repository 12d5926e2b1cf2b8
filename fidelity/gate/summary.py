"""What a terminal and a CI step show of the gate, and its junit.xml."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from fidelity.gate.items import Item, exit_code, shown
from fidelity.words import Outcome

_ELEMENTS = {
    Outcome.FAIL: "failure",
    Outcome.INCONCLUSIVE: "failure",
    Outcome.ERROR: "error",
    Outcome.NOT_APPLICABLE: "skipped",
}
_WORDS = {0: "may merge", 1: "must not merge", 2: "undecided"}
_WORST_FIRST = (
    Outcome.FAIL,
    Outcome.ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_APPLICABLE,
    Outcome.PASS,
)
MOST_FILES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything that the gate says.

    Attributes:
        ref: the base as it was given.
        base: the commit that it means.
        files: changed, as they are shown.
        patches: touched, by name.
        items: the answers.
        notes: further sentences.
    """

    ref: str
    base: str
    files: Sequence[str]
    patches: Sequence[str]
    items: Sequence[Item]
    notes: Sequence[str] = ()

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        code = exit_code(self.items)
        bad = list(dict.fromkeys(i.subject for i in self.items if i.outcome in _BAD))
        what = f"{len(self.files)} files differ from {shown(self.ref)}"
        if not self.patches and not self.items:
            return f"gate: {_WORDS[code]}: {what}, none of a patch; nothing was run"
        touched = ", ".join(self.patches) or "none"
        because = f"; because of {', '.join(bad)}" if bad else ""
        return f"gate: {_WORDS[code]}: {what}; patches touched: {touched}{because}"


_BAD = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)


def _ordered(items: Sequence[Item]) -> list[Item]:
    return sorted(items, key=lambda item: _WORST_FIRST.index(item.outcome))


def terminal_lines(told: Told) -> list[str]:
    """Return the lines of the terminal, the verdict last."""
    lines = [
        f"{item.outcome.upper().replace('_', ' '):<15}{item.rule}  {shown(item.subject)}"
        + (f"  {shown(item.path)}:{item.line}" if item.path else "")
        + (f"\n{'':<15}{shown(item.message)}" if item.message else "")
        for item in _ordered(told.items)
    ]
    return [*lines, *(shown(note) for note in told.notes), told.sentence]


def markdown(told: Told) -> str:
    """Return the summary of a CI step."""
    lines = [f"## {_cell(told.sentence)}", "", f"base `{told.base[:12]}`", ""]
    if told.items:
        lines += ["| outcome | rule | of | where | |", "|---|---|---|---|---|"]
    for item in _ordered(told.items):
        where = f"{shown(item.path)}:{item.line}" if item.path else ""
        cells = (item.outcome.replace("_", " "), item.rule, item.subject, where, item.message)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    lines += ["", *(f"- {_cell(note)}" for note in told.notes)]
    shown_files = [f"- {_cell(name)}" for name in told.files[:MOST_FILES]]
    hidden = len(told.files) - MOST_FILES
    lines += ["", "<details><summary>changed files</summary>", "", *shown_files]
    lines += [f"- and {hidden} more"] if hidden > 0 else []
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _cell(text: str) -> str:
    """Make text harmless in Markdown: a file's name must not write a heading or a link."""
    plain = shown(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    for mark in "|`*_[]#!~":
        plain = plain.replace(mark, "\\" + mark)
    return plain


def write_junit(path: Path, items: Sequence[Item]) -> None:
    """Write one case an item."""
    kinds = [_ELEMENTS.get(item.outcome) for item in items]
    suite = Element(
        "testsuite",
        name="fidelity gate",
        tests=str(len(items)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{sum(item.duration_s for item in items):.3f}",
    )
    for item, kind in zip(items, kinds, strict=True):
        case = SubElement(
            suite,
            "testcase",
            classname=item.rule,
            name=shown(item.subject),
            file=shown(item.path),
            line=str(item.line),
            time=f"{item.duration_s:.3f}",
        )
        if kind is not None:
            told = SubElement(case, kind, message=shown(item.message))
            if kind != "skipped":
                told.set("type", str(item.outcome))
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
