"""Context gain: what a fact in the context is worth to its answer, by length and depth, in nats."""

from dataclasses import dataclass
from typing import Any

from reports.view_bins import Cell
from reports.view_journal import Journal
from reports.view_needles import Map

SUITE = "context_gain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The map of gains; `distractor` says what altering another fact does."""

    summary: str
    table: Map
    distractor: str


def gain_of(journal: Journal) -> Gain | None:
    """Return the gains of a run, None where no context gain was measured."""
    profile = next(
        (f.profile for f in journal.findings if f.suite == SUITE and f.profile is not None), None
    )
    if not profile or not profile.get("cells"):
        return None
    cells, lengths = profile["cells"], profile["lengths"]
    asked, gained = sum(row["n"] for row in lengths), sum(row["gains"] for row in lengths)
    return Gain(
        summary=f"the fact gains in {gained} of {asked} contexts",
        table=_table(cells, lengths),
        distractor=_distractor(profile.get("distractor_nats") or [], lengths),
    )


def _table(cells: list[dict[str, Any]], lengths: list[dict[str, Any]]) -> Map:
    rows = [row["length_tokens"] for row in lengths]
    depths = sorted({cell["depth_frac"] for cell in cells})
    lines = [
        (
            f"{depth:g}",
            tuple(_cell(_at(cells, row, depth), row, f"depth {depth:g}") for row in rows),
        )
        for depth in depths
    ]
    lines.append(("all", tuple(_cell(row, row["length_tokens"], "all depths") for row in lengths)))
    return Map(
        columns=tuple(f"{row:,}" for row in rows),
        column_titles=tuple(f"{row:,} tokens" for row in rows),
        rows=tuple(lines),
    )


def _at(cells: list[dict[str, Any]], row: int, depth: float) -> dict[str, Any] | None:
    return next((c for c in cells if c["length_tokens"] == row and c["depth_frac"] == depth), None)


def _cell(found: dict[str, Any] | None, row: int, where: str) -> Cell:
    if found is None:
        return Cell(text="", tone="blank", title=f"{row:,} tokens, {where}: never asked")
    mean, least = found["mean"], found["least"]
    tone = "r4" if least >= 0.01 else "r2" if mean >= 0.01 else "r0"
    return Cell(
        text=f"{mean:+.1f}".replace("-0.0", "+0.0"),
        tone=tone,
        title=f"{row:,} tokens, {where}: {mean:+.2f} nats on average, {least:+.2f} at least,"
        f" of {found['n']}",
    )


def _distractor(nats: list[float], lengths: list[dict[str, Any]]) -> str:
    if not nats:
        return ""
    average = sum(nats) / len(nats)
    gain = sum(row["mean"] * row["n"] for row in lengths) / sum(row["n"] for row in lengths)
    return (
        f"Altering another fact instead of the one asked for is worth {average:+.2f} nats on"
        f" average ({len(nats)} contexts); altering the fact itself {gain:+.2f}."
    )
