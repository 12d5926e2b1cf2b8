"""Needle maps: how much was found, by length and depth, by residue, and by kind of needle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fidelity.records import Trial
from fidelity.verdicts.axes import (
    DEPTH,
    KIND,
    LENGTH,
    MODULI,
    number,
    pattern,
    prompt_length,
    residue_words,
)
from reports.view_bins import Bin, Cell, Tally, depth_bins, length_bins, tally
from reports.view_journal import Journal
from reports.view_text import plural

_NO_ANSWER = ("golden text", "context gain")
"""Probes of a length and a depth in which nothing is asked for: sections of their own show them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A table of cells with names for its rows and columns."""

    columns: tuple[str, ...]
    column_titles: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidueMap:
    """Lengths by residue: `cells` in order of the residue, blank where no length fell on it."""

    modulus: int
    cells: tuple[Cell, ...]
    covered: str
    open: bool
    """Whether it is shown at once: the coarse ones, and a fine one that may say more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needles:
    """Everything about single facts in long contexts."""

    trials: int
    summary: str
    pattern: str
    by_depth: Map | None
    by_kind: Map | None
    residues: tuple[ResidueMap, ...]
    missing: str


def needle_trials(journal: Journal) -> tuple[Trial, ...]:
    """Return the needle trials that count: no controls, no arms."""
    controls = journal.control_trials
    plain = [
        trial
        for trial in journal.trials
        if not trial.arm
        and trial.id not in controls
        and trial.probe not in _NO_ANSWER
        and number(trial, LENGTH) is not None
    ]
    named = [trial for trial in plain if "needle" in trial.probe or "needle" in trial.suite]
    return tuple(named or [trial for trial in plain if DEPTH in trial.cell])


def needles_of(journal: Journal, links: dict[str, str]) -> Needles:
    """Return the needle maps; `links` gives the anchor of each miss that the page shows."""
    trials = needle_trials(journal)
    counts = tally(trials)
    common = pattern(trials)
    bins = length_bins(length for trial in trials if (length := number(trial, LENGTH)) is not None)
    return Needles(
        trials=len(trials),
        summary=_summary(counts),
        pattern=common,
        by_depth=_by_depth(trials, bins, links),
        by_kind=_by_kind(trials, bins, links),
        residues=_residues(trials, links, coarse=common) if trials else (),
        missing="" if trials else _why_missing(journal),
    )


def _summary(counts: Tally) -> str:
    found = f"{counts.right} of {plural(counts.scored, 'needle')} found"
    if not counts.errors:
        return found
    return f"{found}; {plural(counts.errors, 'trial')} could not be measured"


def _why_missing(journal: Journal) -> str:
    if not journal.trials:
        return "No trial was run, so nothing is known about recall."
    return "No trial of this run asks for a fact at a known length: no needle suite was selected."


def _cell(trials: Sequence[Trial], where: str, links: dict[str, str]) -> Cell:
    counts = tally(trials)
    if not trials:
        return Cell(text="", tone="blank", title=f"{where}: never asked")
    title = f"{where}: {counts.right} of {counts.scored} found"
    if counts.errors:
        title += f", {counts.errors} not measurable"
    href = next((links[miss] for miss in counts.misses if miss in links), "")
    return Cell(text=counts.text, tone=counts.tone, title=title, href=href)


def _table(
    trials: Sequence[Trial],
    columns: Sequence[Bin],
    rows: Sequence[tuple[str, str, Callable[[Trial], bool]]],
    links: dict[str, str],
) -> Map:
    """Return a map with lengths across and `rows` (label, title, membership) down."""
    lines = []
    for label, row_title, belongs in rows:
        members = [trial for trial in trials if belongs(trial)]
        cells = tuple(
            _cell(
                [trial for trial in members if column.holds(number(trial, LENGTH) or 0)],
                f"{column.title}, {row_title}",
                links,
            )
            for column in columns
        )
        lines.append((label, cells))
    return Map(
        columns=tuple(column.label for column in columns),
        column_titles=tuple(column.title for column in columns),
        rows=tuple(lines),
    )


def _by_depth(trials: Sequence[Trial], columns: Sequence[Bin], links: dict[str, str]) -> Map | None:
    depths = [depth for trial in trials if (depth := number(trial, DEPTH)) is not None]
    if not depths:
        return None

    def within(row: Bin) -> Callable[[Trial], bool]:
        return lambda trial: (depth := number(trial, DEPTH)) is not None and row.holds(depth)

    rows = [(row.label, f"depth {row.label}", within(row)) for row in depth_bins(depths)]
    rows.append(("all", "all depths", lambda _: True))
    return _table(trials, columns, rows, links)


def _by_kind(trials: Sequence[Trial], columns: Sequence[Bin], links: dict[str, str]) -> Map | None:
    kinds = sorted({str(trial.cell[KIND]) for trial in trials if KIND in trial.cell})
    if not kinds:
        return None

    def of(kind: str) -> Callable[[Trial], bool]:
        return lambda trial: str(trial.cell.get(KIND)) == kind

    return _table(trials, columns, [(kind, kind, of(kind)) for kind in kinds], links)


def _residues(
    trials: Sequence[Trial], links: dict[str, str], *, coarse: str
) -> tuple[ResidueMap, ...]:
    """Return the map of each modulus; fine ones stand open where no coarse one says it all."""
    told = coarse and not any(f"(mod {modulus})" in coarse for modulus in MODULI[2:])
    return tuple(_residue(trials, modulus, links, told=bool(told)) for modulus in MODULI)


def _residue(
    trials: Sequence[Trial], modulus: int, links: dict[str, str], *, told: bool
) -> ResidueMap:
    members: list[list[Trial]] = [[] for _ in range(modulus)]
    for trial in trials:
        length = prompt_length(trial)
        if length is not None:
            members[length % modulus].append(trial)
    hit = sum(bool(group) for group in members)
    missed = sum(trial.ok is False for group in members for trial in group)
    return ResidueMap(
        modulus=modulus,
        cells=tuple(
            _cell(group, residue_words(modulus, residue), links)
            for residue, group in enumerate(members)
        ),
        open=modulus <= 16 or (missed > 1 and not told),
        covered="every residue" if hit == modulus else f"{hit} of {modulus} residues",
    )
