"""Coverage: how many tokens were prefilled, read from cache and generated, and what never was."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.records import Exchange
from reports.view_bins import Bin, Cell, compact
from reports.view_gaps import Axes, Place, never_of
from reports.view_journal import Journal
from reports.view_paths import PathRow, Request, paths_of, request_of
from reports.view_text import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Prefilled across, cached down, for one range of generated tokens; no rows if it is blank."""

    title: str
    count: str
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The map, and its blanks in words."""

    columns: tuple[str, ...]
    panels: tuple[Panel, ...]
    blank_panels: tuple[str, ...]
    """Ranges of generated tokens that no request reached."""
    paths: tuple[PathRow, ...]
    summary: str
    never: tuple[str, ...]
    notes: tuple[str, ...]
    missing: str


def coverage_of(journal: Journal) -> Coverage:
    """Return the coverage map of all exchanges of a run."""
    exchanges = [exchange for trial in journal.trials for exchange in trial.exchanges]
    requests = [request for exchange in exchanges if (request := request_of(exchange))]
    if not requests:
        return _nothing(journal, len(exchanges))
    limit = _limit(journal)
    reach = max(limit or 0, *(r.prefilled + r.cached + r.generated for r in requests))
    axes = axes_of(requests, reach)
    grid = _grid(requests, axes)
    panels = [_panel(grid, axes, depth, reach) for depth in range(len(axes.generated))]
    return Coverage(
        columns=tuple(column.label for column in axes.prefilled),
        panels=tuple(panel for panel in panels if panel.rows),
        blank_panels=tuple(panel.title for panel in panels if not panel.rows),
        paths=paths_of(journal, requests),
        summary=_longest(requests),
        never=never_of(requests, set(grid), axes, reach),
        notes=_notes(exchanges, requests, limit),
        missing="",
    )


def _nothing(journal: Journal, exchanges: int) -> Coverage:
    return Coverage(
        columns=(),
        panels=(),
        blank_panels=(),
        paths=paths_of(journal, ()),
        summary="",
        never=("Nothing was exercised.",),
        notes=(),
        missing=_why_missing(exchanges),
    )


def _why_missing(exchanges: int) -> str:
    if not exchanges:
        return "No request was answered, so there is nothing to map."
    return (
        f"None of {plural(exchanges, 'exchange')} came back with token counts: the server reports "
        "no usage, or every request failed. The whole map is blank."
    )


def _limit(journal: Journal) -> int | None:
    """Return the longest sequence that the server takes, as discovery found or it says."""
    if journal.manifest is not None and journal.manifest.max_model_len is not None:
        return journal.manifest.max_model_len
    info: Mapping[str, Any] = journal.manifest.server_info if journal.manifest else {}
    for name in ("max_model_len", "context_length", "max_total_tokens"):
        value = info.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def axes_of(requests: Sequence[Request], reach: int) -> Axes:
    """Return geometric bins for each axis, up to the longest sequence that is possible here."""
    cached = token_bins(reach, 128, 2 if reach <= 65_536 else 4)
    first = cached[1]
    return Axes(
        # the last prompt token is always computed, so that "none prefilled" is no bin of its own
        prefilled=(Bin(low=0, high=first.high, label=first.label, title=first.title), *cached[2:]),
        cached=cached,
        generated=token_bins(max(reach // 2, *(r.generated for r in requests)), 16, 4),
    )


def token_bins(reach: int, first: int, factor: int) -> tuple[Bin, ...]:
    """Return 0, 1 to `first`, and geometric bins up to `reach`, each with its upper edge inside.

    The upper edge belongs to the bin: a prompt of 8,192 tokens says nothing about 8k to 16k.
    """
    bins = [Bin(low=0, high=0, label="0", title="0")]
    low, high = 1, first
    while len(bins) < 2 or low <= reach:
        bins.append(Bin(low=low, high=high, label=compact(high), title=f"{low:,} to {high:,}"))
        low, high = high + 1, high * factor
    return tuple(bins)


Grid = Mapping[Place, Sequence[Request]]


def _grid(requests: Iterable[Request], axes: Axes) -> Grid:
    grid: dict[Place, list[Request]] = defaultdict(list)
    for request in requests:
        place = (
            _index(axes.prefilled, request.prefilled),
            _index(axes.cached, request.cached),
            _index(axes.generated, request.generated),
        )
        grid[place].append(request)
    return grid


def _index(bins: Sequence[Bin], value: int) -> int:
    return next(place for place, bin_ in enumerate(bins) if bin_.holds(value))


def _panel(grid: Grid, axes: Axes, depth: int, limit: int) -> Panel:
    generated = axes.generated[depth]
    rows = tuple(
        (
            cached_bin.label,
            tuple(
                _cell(grid.get((column, row, depth), ()), (bin_, cached_bin, generated), limit)
                for column, bin_ in enumerate(axes.prefilled)
            ),
        )
        for row, cached_bin in enumerate(axes.cached)
    )
    count = sum(len(group) for place, group in grid.items() if place[2] == depth)
    return Panel(title=generated.title, count=plural(count, "request"), rows=rows if count else ())


def _cell(group: Sequence[Request], where: tuple[Bin, Bin, Bin], limit: int) -> Cell:
    words = (
        f"{where[0].title} prefilled, {where[1].title} cached, {where[2].title} generated tokens"
    )
    if group:
        count = len(group)
        tone = "c3" if count >= 64 else "c2" if count >= 8 else "c1"
        return Cell(text=compact(count), tone=tone, title=f"{words}: {plural(count, 'request')}")
    if sum(bin_.low for bin_ in where) > limit:
        return Cell(text="", tone="beyond", title=f"{words}: longer than a sequence may be here")
    return Cell(text="", tone="blank", title=f"{words}: never exercised")


def _longest(requests: Sequence[Request]) -> str:
    return (
        f"{plural(len(requests), 'request')}; longest prefill "
        f"{max(r.prefilled for r in requests):,}, longest cached prefix "
        f"{max(r.cached for r in requests):,}, longest generation "
        f"{max(r.generated for r in requests):,} tokens."
    )


def _notes(
    exchanges: Sequence[Exchange], requests: Sequence[Request], limit: int | None
) -> tuple[str, ...]:
    notes = []
    if limit is None:
        notes.append(
            "The server names no longest sequence: the map ends with the longest of the run."
        )
    uncounted = len(exchanges) - len(requests)
    if uncounted:
        notes.append(f"{plural(uncounted, 'exchange')} without token counts: not on the map.")
    blind = sum(not request.cache_known for request in requests)
    if blind:
        notes.append(
            f"{plural(blind, 'request')} without a cached-token count: shown as not cached."
        )
    return tuple(notes)
