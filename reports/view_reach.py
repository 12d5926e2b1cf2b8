"""Effective context: the longest length up to which recall stays at 0.9 or more."""

from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.records import Trial
from fidelity.statistics.effective_context import RECALL, EffectiveContext, Level, effective_context
from fidelity.statistics.stats import Rate, rate_of, wilson
from fidelity.verdicts.axes import LENGTH, number
from reports.view_bins import Bin, compact, length_bins
from reports.view_journal import Journal
from reports.view_needles import needle_trials
from reports.view_text import figure, joined

WIDTH, HEIGHT = 420, 208
LEFT, RIGHT, TOP, BOTTOM = 34, 12, 12, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Recall at one length, with its Wilson interval; `x` and all `y` are places in the drawing."""

    label: str
    title: str
    right: str
    share: str
    bounds: str
    held: bool
    x: float
    y: float
    y_low: float
    y_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The estimate with its interval, and the drawing of recall over length."""

    estimate: str
    sentence: str
    interval: str
    points: tuple[Point, ...]
    threshold_y: float
    mark_x: float | None
    gridlines: tuple[tuple[float, str], ...]
    width: int
    height: int
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """What was observed at one length."""

    bin: Bin
    rate: Rate
    right: int

    @property
    def tokens(self) -> int:
        """The longest of its lengths stands for all."""
        return round(self.bin.high)


def reach_of(journal: Journal) -> Reach:
    """Return the effective context of a run's needle trials.

    Left out are second-stage trials, which were asked because something had failed there, and
    the few around a boundary, which are no sample of a length.
    """
    trials = [
        trial
        for trial in needle_trials(journal)
        if trial.stage == 1 and trial.ok is not None and "boundary" not in trial.cell
    ]
    levels = _levels(trials)
    if not levels:
        return _nothing()
    found = effective_context(
        [Level(length_tokens=level.tokens, rate=level.rate) for level in levels]
    )
    held = sum(level.tokens <= (found.estimate or 0) for level in levels)
    return Reach(
        estimate=_estimate(levels, held),
        sentence=_sentence(levels, held),
        interval=_interval(found),
        points=tuple(_point(level, place < held, levels) for place, level in enumerate(levels)),
        threshold_y=_y(RECALL),
        mark_x=_x(held - 1, len(levels)) if held else None,
        gridlines=tuple((_y(share), figure(share, 1)) for share in (0.0, 0.5, 1.0)),
        width=WIDTH,
        height=HEIGHT,
        missing="",
    )


def _nothing() -> Reach:
    return Reach(
        estimate="not measured",
        sentence="",
        interval="",
        points=(),
        threshold_y=0.0,
        mark_x=None,
        gridlines=(),
        width=WIDTH,
        height=HEIGHT,
        missing="No needle trial was scored, so the run says nothing about how far recall reaches.",
    )


def _levels(trials: Sequence[Trial]) -> list[_Level]:
    placed = [(length, trial) for trial in trials if (length := number(trial, LENGTH)) is not None]
    levels = []
    for column in length_bins(length for length, _ in placed):
        members = [trial for length, trial in placed if column.holds(length)]
        rate = rate_of((trial.cluster, bool(trial.ok)) for trial in members)
        right = sum(bool(trial.ok) for trial in members)
        levels.append(_Level(bin=column, rate=rate, right=right))
    return levels


def _estimate(levels: Sequence[_Level], held: int) -> str:
    if not held:
        return f"less than {levels[0].bin.low:,.0f} tokens"
    longest = "at least " if held == len(levels) else ""
    return f"{longest}{levels[held - 1].tokens:,} tokens"


def _sentence(levels: Sequence[_Level], held: int) -> str:
    dips = [_share_at(level) for level in levels[:held] if level.rate.share < RECALL]
    but = f" Short of it within that: {joined(dips)}." if dips else ""
    if held == len(levels):
        return (
            f"Recall holds at {RECALL} or more to the longest length asked; nothing is known "
            f"beyond {levels[-1].tokens:,} tokens.{but}"
        )
    lost = _share_at(levels[held])
    if not held:
        return f"Recall is below {RECALL} at the shortest length already: {lost}."
    reach = levels[held - 1].tokens
    return f"Recall holds at {RECALL} or more up to {reach:,} tokens; it is {lost}.{but}"


def _share_at(level: _Level) -> str:
    share = figure(level.rate.share, 2)
    return f"{share} ({level.right}/{level.rate.trials}) at {level.bin.title}"


def _interval(found: EffectiveContext) -> str:
    """Return the interval in words: up to where recall is proven, from where its loss is."""
    low = "at no length" if found.lower is None else f"up to {found.lower:,} tokens"
    high = "at no length" if found.upper is None else f"from {found.upper:,} tokens on"
    return (
        f"Shown to hold {low} and to be lost {high}: 95 % bounds, recall taken not to rise with "
        "length."
    )


def _x(place: int, count: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / count, 1)


def _y(share: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)


def _point(level: _Level, held: bool, levels: Sequence[_Level]) -> Point:
    place, rate = levels.index(level), level.rate
    low, high = wilson(rate.k, rate.n)
    return Point(
        label=compact(level.bin.low),
        title=level.bin.title,
        right=f"{level.right}/{rate.trials}",
        share=figure(rate.share, 2),
        bounds=f"{figure(low, 2)} to {figure(high, 2)}",
        held=held,
        x=_x(place, len(levels)),
        y=_y(rate.share),
        y_low=_y(low),
        y_high=_y(high),
    )
