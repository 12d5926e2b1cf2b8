"""junit.xml of a run: one case a claim, with n, k and interval as properties.

A claim of several parts has the same of each part, named `part.1.title`, `part.1.k`, ...

inconclusive and error are failures of their own type, not_applicable is skipped with its reason.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from fidelity.records import Finding, Part
from fidelity.words import Outcome

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {
    Outcome.FAIL: "failure",
    Outcome.INCONCLUSIVE: "failure",
    Outcome.ERROR: "error",
    Outcome.NOT_APPLICABLE: "skipped",
}


def write_junit(
    path: Path, findings: Sequence[Finding], *, not_run: Sequence[str] = (), duration_s: float = 0.0
) -> None:
    """Write the findings of a run; claims that were planned and not run are errors."""
    suite = Element(
        "testsuite",
        name="fidelity",
        tests=str(len(findings) + len(not_run)),
        failures=str(sum(_ELEMENTS.get(f.outcome) == "failure" for f in findings)),
        errors=str(sum(f.outcome is Outcome.ERROR for f in findings) + len(not_run)),
        skipped=str(sum(f.outcome is Outcome.NOT_APPLICABLE for f in findings)),
        time=f"{duration_s:.3f}",
    )
    for finding in findings:
        _case(suite, finding)
    for claim in not_run:
        case = SubElement(suite, "testcase", classname=claim.partition("/")[0], name=_clean(claim))
        SubElement(case, "error", type="not_run", message="planned, and the run ended before it")
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _case(suite: Element, finding: Finding) -> None:
    case = SubElement(
        suite,
        "testcase",
        classname=_clean(finding.suite),
        name=_clean(finding.claim.partition("/")[2] or finding.claim),
        time="0",
    )
    properties = SubElement(case, "properties")
    for name, value in _properties(finding).items():
        SubElement(properties, "property", name=name, value=_clean(value))
    element = _ELEMENTS.get(finding.outcome)
    if element == "skipped":
        SubElement(case, element, message=_clean(finding.reason))
    elif element is not None:
        shown = SubElement(case, element, type=str(finding.outcome), message=_clean(finding.reason))
        shown.text = _clean(f"{finding.title}: {finding.reason}")


def _properties(finding: Finding) -> dict[str, str]:
    known = {
        "outcome": finding.outcome,
        "title": finding.title,
        **_figures(finding),
        "minimum_detectable_effect": finding.minimum_detectable_effect or None,
        "blame": finding.blame,
        "ladder": finding.ladder,
    }
    for number, part in enumerate(finding.parts, start=1):
        figures = {
            "title": part.title,
            "outcome": part.outcome,
            **_figures(part),
            "reason": part.reason,
            "blame": part.blame,
        }
        known |= {f"part.{number}.{name}": value for name, value in figures.items()}
    return {name: str(value) for name, value in known.items() if value is not None}


def _figures(decided: Finding | Part) -> dict[str, str | float | None]:
    return {
        "n": decided.n,
        "k": decided.k,
        "effect": decided.effect,
        "threshold": decided.threshold,
        "lower": decided.interval[0] if decided.interval else None,
        "upper": decided.interval[1] if decided.interval else None,
        "p_value": decided.p_value,
    }


def _clean(text: str) -> str:
    return _NOT_XML.sub("�", text)
