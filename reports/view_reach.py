"""Effective context: the longest length up to which recall stays at 0.9 or more."""

from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.records import Trial
from fidelity.stats import clopper_pearson_lower, clopper_pearson_upper, rate_of
from reports.view_axes import LENGTH, number
from reports.view_bins import Bin, compact, length_bins
from reports.view_journal import Journal
from reports.view_needles import needle_trials
from reports.view_text import figure

RECALL = 0.9
WIDTH, HEIGHT = 420, 208
LEFT, RIGHT, TOP, BOTTOM = 34, 12, 12, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Recall at one length: `x`, `y`, `y_low`, `y_high` are places in the drawing."""

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
    k_low: int
    k_high: int
    n: int
    share: float
    trials: int
    right: int

    @property
    def lower(self) -> float:
        return clopper_pearson_lower(self.k_low, self.n)

    @property
    def upper(self) -> float:
        return clopper_pearson_upper(self.k_high, self.n)


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
    held = _held(levels)
    return Reach(
        estimate=_estimate(levels, held),
        sentence=_sentence(levels, held),
        interval=_interval(levels),
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
        levels.append(
            _Level(
                bin=column,
                k_low=rate.k_low,
                k_high=rate.k_high,
                n=rate.n,
                share=rate.share,
                trials=len(members),
                right=sum(bool(trial.ok) for trial in members),
            )
        )
    return levels


def _held(levels: Sequence[_Level]) -> int:
    """Return how many lengths, from the shortest, have a recall of RECALL or more."""
    return next((place for place, level in enumerate(levels) if level.share < RECALL), len(levels))


def _estimate(levels: Sequence[_Level], held: int) -> str:
    if not held:
        return f"less than {levels[0].bin.low:,.0f} tokens"
    longest = "at least " if held == len(levels) else ""
    return f"{longest}{levels[held - 1].bin.high:,.0f} tokens"


def _sentence(levels: Sequence[_Level], held: int) -> str:
    longest = levels[-1].bin.high
    if held == len(levels):
        return (
            f"Recall is {RECALL} or more at every length asked. The longest was {longest:,.0f} "
            "tokens; nothing is known beyond it."
        )
    lost = levels[held]
    where = f"at {lost.bin.title} it is {figure(lost.share, 2)} ({lost.right}/{lost.trials})"
    if not held:
        return f"Recall is below {RECALL} at the shortest length already: {where}."
    return f"Recall is {RECALL} or more up to {levels[held - 1].bin.high:,.0f} tokens; {where}."


def _interval(levels: Sequence[_Level]) -> str:
    """Return the interval in words: from where recall is proven, to where its loss is."""
    proven, right, seen = 0.0, 0, 0
    for level in levels[: _held(levels)]:
        right, seen = right + level.k_low, seen + level.n
        if clopper_pearson_lower(right, seen) >= RECALL:
            proven = level.bin.high
    lost = next((level for level in levels if level.upper < RECALL), None)
    low = f"{proven:,.0f} tokens" if proven else "no length"
    high = f"below {lost.bin.high:,.0f} tokens" if lost else "open"
    return (
        f"95 % bounds: {low} at the low end (all lengths up to there pooled: lower bound ≥ "
        f"{RECALL}), {high} at the high end"
        + (" (upper bound < 0.9 there)." if lost else " (no length is proven lost).")
    )


def _x(place: int, count: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / count, 1)


def _y(share: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)


def _point(level: _Level, held: bool, levels: Sequence[_Level]) -> Point:
    place = levels.index(level)
    bounds = f"{figure(level.lower, 2)} to {figure(level.upper, 2)}"
    return Point(
        label=compact(level.bin.low),
        title=level.bin.title,
        right=f"{level.right}/{level.trials}",
        share=figure(level.share, 2),
        bounds=bounds,
        held=held,
        x=_x(place, len(levels)),
        y=_y(level.share),
        y_low=_y(level.lower),
        y_high=_y(level.upper),
    )
