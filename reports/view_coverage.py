"""Coverage: how many tokens were prefilled, read from cache and generated, and what never was."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.records import Exchange
from reports.view_bins import Bin, Cell, compact
from reports.view_gaps import never_of
from reports.view_journal import Journal
from reports.view_paths import PathRow, Request, paths_of, request_of
from reports.view_text import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Prefilled across, cached down, for one range of generated tokens."""

    title: str
    count: int
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The map, and its blanks in words."""

    columns: tuple[str, ...]
    panels: tuple[Panel, ...]
    paths: tuple[PathRow, ...]
    summary: str
    never: tuple[str, ...]
    notes: tuple[str, ...]
    missing: str


def coverage_of(journal: Journal) -> Coverage:
    """Return the coverage map of all exchanges of a run."""
    exchanges = [exchange for trial in journal.trials for exchange in trial.exchanges]
    requests = [request for exchange in exchanges if (request := request_of(exchange))]
    limit = _limit(journal)
    if not requests:
        return Coverage(
            columns=(),
            panels=(),
            paths=paths_of(journal, requests),
            summary="",
            never=("Nothing was exercised.",),
            notes=(),
            missing=_why_missing(len(exchanges)),
        )
    reach = max(limit or 0, *(r.prefilled + r.cached + r.generated for r in requests))
    bins = token_bins(reach, 128, 2 if reach <= 65_536 else 4)
    generated_bins = token_bins(max(reach // 2, *(r.generated for r in requests)), 16, 4)
    grid = _grid(requests, bins, generated_bins)
    return Coverage(
        columns=tuple(column.label for column in bins),
        panels=tuple(
            _panel(grid, bins, row, depth, limit or reach)
            for depth, row in enumerate(generated_bins)
        ),
        paths=paths_of(journal, requests),
        summary=_longest(requests),
        never=never_of(set(grid), bins, generated_bins, limit or reach),
        notes=_notes(exchanges, requests, limit),
        missing="",
    )


def _why_missing(exchanges: int) -> str:
    if not exchanges:
        return "No request was answered, so there is nothing to map."
    return (
        f"None of {plural(exchanges, 'exchange')} came back with token counts: the server reports "
        "no usage, or every request failed. The whole map is blank."
    )


def _limit(journal: Journal) -> int | None:
    """Return the longest sequence that the server says it takes."""
    info: Mapping[str, Any] = journal.manifest.server_info if journal.manifest else {}
    for name in ("max_model_len", "context_length", "max_total_tokens"):
        value = info.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def token_bins(reach: int, first: int, factor: int) -> tuple[Bin, ...]:
    """Return 0, 1 to `first`, and geometric bins up to `reach`, each with its upper edge inside.

    The upper edge belongs to the bin: a prompt of 8,192 tokens says nothing about 8k to 16k.
    """
    bins = [Bin(low=0, high=0, label="0", title="0")]
    low, high = 1, first
    while low <= max(reach, 1) and len(bins) < 14:
        bins.append(Bin(low=low, high=high, label=compact(high), title=f"{low:,} to {high:,}"))
        low, high = high + 1, high * factor
    return tuple(bins)


Grid = Mapping[tuple[int, int, int], Sequence[Request]]


def _index(bins: Sequence[Bin], value: int) -> int:
    return next((place for place, bin_ in enumerate(bins) if bin_.holds(value)), len(bins) - 1)


def _grid(requests: Iterable[Request], bins: Sequence[Bin], generated: Sequence[Bin]) -> Grid:
    grid: dict[tuple[int, int, int], list[Request]] = defaultdict(list)
    for request in requests:
        place = (
            _index(bins, request.prefilled),
            _index(bins, request.cached),
            _index(generated, request.generated),
        )
        grid[place].append(request)
    return grid


def _panel(grid: Grid, bins: Sequence[Bin], row: Bin, depth: int, limit: int) -> Panel:
    lines = []
    for cached, cached_bin in enumerate(bins):
        cells = tuple(
            _cell(
                grid.get((prefilled, cached, depth), ()), (bins[prefilled], cached_bin, row), limit
            )
            for prefilled in range(len(bins))
        )
        lines.append((cached_bin.label, cells))
    count = sum(len(group) for place, group in grid.items() if place[2] == depth)
    return Panel(title=row.title, count=count, rows=tuple(lines))


def _cell(group: Sequence[Request], where: tuple[Bin, Bin, Bin], limit: int) -> Cell:
    words = (
        f"{where[0].title} prefilled, {where[1].title} cached, {where[2].title} generated tokens"
    )
    if group:
        count = len(group)
        tone = "c3" if count >= 64 else "c2" if count >= 8 else "c1"
        return Cell(text=compact(count), tone=tone, title=f"{words}: {plural(count, 'request')}")
    if not _possible(where[0], where[1], where[2], limit):
        return Cell(text="", tone="beyond", title=f"{words}: not possible here")
    return Cell(text="", tone="blank", title=f"{words}: never exercised")


def _possible(prefilled: Bin, cached: Bin, generated: Bin, limit: int) -> bool:
    """Return whether a request may fall here: some prompt at least, and within the limit."""
    if prefilled.high == 0:  # at least the last prompt token is always computed
        return False
    return prefilled.low + cached.low + generated.low <= limit


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
        notes.append("The server does not say how long a sequence may be; the map ends where the "
                     "run did.")  # fmt: skip
    uncounted = len(exchanges) - len(requests)
    if uncounted:
        notes.append(f"{plural(uncounted, 'exchange')} without token counts: not on the map.")
    blind = sum(not request.cache_known for request in requests)
    if blind:
        notes.append(
            f"{plural(blind, 'request')} without a cached-token count: shown as not cached."
        )
    return tuple(notes)
