"""A finding that decides several things at once: its parts, the decisive one first.

The harness joins titles with "; " and gives each part's reason after its title. The figures of
the finding (counts, bounds, threshold) are those of its worst part.
"""

from dataclasses import dataclass

from fidelity.records import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several decisions: its title and its reason."""

    title: str
    reason: str


def parts_of(finding: Finding) -> tuple[Part, ...]:
    """Return the parts of a finding, the one that its figures belong to first; one at least."""
    whole = Part(title=finding.title or finding.claim, reason=finding.reason)
    titles = finding.title.split("; ")
    if len(titles) < 2:
        return (whole,)
    starts, place = [], 0
    for title in titles:
        place = finding.reason.find(f"{title}: ", place)
        if place < 0:  # reworded since: a control, Holm
            return (Part(title=titles[0], reason=finding.reason), *_bare(titles[1:]))
        starts.append(place)
        place += len(title)
    parts = [
        Part(title=title, reason=finding.reason[start + len(title) + 2 : end].removesuffix("; "))
        for title, start, end in zip(
            titles, starts, [*starts[1:], len(finding.reason)], strict=True
        )
    ]
    decisive = next((part for part in parts if _speaks(finding, part)), parts[0])
    return (decisive, *(part for part in parts if part is not decisive))


def _bare(titles: list[str]) -> tuple[Part, ...]:
    return tuple(Part(title=title, reason="") for title in titles)


def _speaks(finding: Finding, part: Part) -> bool:
    """Return whether the counts of a finding are those that a part's reason begins with."""
    counted = part.reason.startswith(f"{finding.k} of {finding.n} ")
    return counted and (finding.threshold is None or f">= {finding.threshold:.2f}" in part.reason)
