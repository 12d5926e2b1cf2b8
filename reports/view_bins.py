"""Bins and tallies: how trials are sorted into the cells of a map."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fidelity.records import Trial
from reports.view_text import figure

MAX_COLUMNS = 12
"""More distinct values than this are put into bins: a map must fit on a telephone."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of the trials of one cell."""

    right: int = 0
    scored: int = 0
    errors: int = 0
    misses: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """Count one trial; infrastructure trouble is not a wrong answer."""
        if trial.ok is None:
            self.errors += 1
            return
        self.scored += 1
        self.right += trial.ok
        if not trial.ok:
            self.misses.append(trial.id)

    @property
    def rate(self) -> float | None:
        """Share of right answers, None where nothing was scored."""
        return self.right / self.scored if self.scored else None

    @property
    def text(self) -> str:
        """`11/12`; errors are shown as `!3`, since they count neither way."""
        shown = [f"{self.right}/{self.scored}"] if self.scored else []
        return " ".join([*shown, f"!{self.errors}"] if self.errors else shown)

    @property
    def tone(self) -> str:
        """Name of the style: how much was found, in five steps."""
        if self.rate is None:
            return "err" if self.errors else "blank"
        steps = ((1.0, "r4"), (0.9, "r3"), (0.6, "r2"), (0.2, "r1"))
        return next((tone for least, tone in steps if self.rate >= least), "r0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a map as it is printed; `href` leads to its first miss."""

    text: str
    tone: str
    title: str
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One column or row of a map: values from `low` to `high`, both inside."""

    low: float
    high: float
    label: str
    title: str

    def holds(self, value: float) -> bool:
        """Return whether a value lies in this bin."""
        return self.low <= value <= self.high


def tally(trials: Iterable[Trial]) -> Tally:
    """Return the counts of some trials."""
    counts = Tally()
    for trial in trials:
        counts.add(trial)
    return counts


def length_bins(lengths: Iterable[float]) -> tuple[Bin, ...]:
    """Return a bin for each length, or one for each group of near lengths where there are many.

    A sweep by residue sends 1,024 to 1,151 tokens, and that is one size: a group ends where the
    next length is a fifth longer, or twice as long as its shortest.
    """
    values = sorted(set(lengths))
    groups = _groups(values) if len(values) > MAX_COLUMNS else [[value] for value in values]
    return tuple(
        Bin(
            low=group[0],
            high=group[-1],
            label=compact(group[0]) if len(group) == 1 else f"{compact(group[0])}+",
            title=_span(group, "tokens"),
        )
        for group in groups
    )


def _groups(values: Sequence[float]) -> list[list[float]]:
    groups: list[list[float]] = []
    for value in values:
        if groups and value < 1.2 * groups[-1][-1] and value < 2 * groups[-1][0]:
            groups[-1].append(value)
        else:
            groups.append([value])
    return groups


def depth_bins(depths: Iterable[float]) -> tuple[Bin, ...]:
    """Return a bin for each depth, or tenths where there are too many."""
    values = sorted(set(depths))
    if len(values) <= MAX_COLUMNS:
        groups = [[value] for value in values]
    else:
        tenths: dict[int, list[float]] = {}
        for value in values:
            tenths.setdefault(min(int(value * 10), 9), []).append(value)
        groups = [tenths[tenth] for tenth in sorted(tenths)]
    return tuple(
        Bin(low=group[0], high=group[-1], label=figure(group[0], 2), title=_span(group, "depth"))
        for group in groups
    )


def _span(group: Sequence[float], unit: str) -> str:
    if len(group) == 1:
        return f"{figure(group[0], 2) if unit == 'depth' else f'{group[0]:,.0f}'} {unit}"
    if unit == "depth":
        return f"depth {figure(group[0], 2)} to {figure(group[-1], 2)}"
    return f"{group[0]:,.0f} to {group[-1]:,.0f} {unit}"


def compact(number: float) -> str:
    """Return a token count in few characters: `96`, `1k`, `1.5k`, `8k`, `131k`.

    Powers of two are named as people name them: 8,192 is `8k`, 131,072 is `128k`.
    """
    whole = round(number)
    if whole < 1000:
        return str(whole)
    if whole % 1024 == 0:
        return f"{whole // 1024}k" if whole < 1024**2 else f"{figure(whole / 1024**2, 1)}M"
    if whole < 1_000_000:
        return f"{figure(whole / 1000, 1 if whole < 100_000 else 0)}k"
    return f"{figure(whole / 1e6, 1)}M"
