"""Which prompts a twin is asked with: lengths by residue and boundary, depths, answer lengths."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fidelity.checks.dealing import dealt
from fidelity.errors import ConfigError
from fidelity.records import Trial
from fidelity.twins.room import Room
from fidelity.words import Budget

MODULI = (4, 16, 64, 128)
LONG = {
    Budget.QUICK: (1_024, 2_048),
    Budget.STANDARD: (2_048, 8_192),
    Budget.DEEP: (2_048, 8_192, 32_768),
}
"""Tokens; the sweep's own lengths are short, so that many prompts are affordable."""
LONG_SPREAD = 128
"""Below such a length, so that prompts of a class have all residues."""
SLACK_TOKENS = 512
"""Of a server's limit, for answers, further turns and a template."""
DEPTHS_FRAC = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One prompt of a twin.

    Attributes:
        seed: of names, codes and filler.
        length: of the prompt in tokens, exact where the server takes ids.
        tokens: to generate.
        depth_frac: where the fact stands that the prompt asks for.
        boundary: "256+1" when the length was chosen for a boundary.
        kind: a further axis of the twin, "axis=value"; "" when it has none.
        long: the length beyond the sweep that the prompt stands for; 0 for one within it.
    """

    seed: str
    length: int
    tokens: int
    depth_frac: float = 0.5
    boundary: str = ""
    kind: str = ""
    long: int = 0

    @property
    def key(self) -> str:
        """Unique in a claim, arm and stage."""
        return f"{self.length}/{self.tokens}/{self.boundary}/{self.kind}/{self.seed}"

    @property
    def cell(self) -> dict[str, str | int | float]:
        """Return the axes."""
        axes: dict[str, str | int | float] = {
            "length_tokens": self.length,
            "depth_frac": self.depth_frac,
            "answer_tokens": self.tokens,
        }
        axes |= {f"residue_{m}": self.length % m for m in MODULI}
        if self.boundary:
            axes["boundary"] = self.boundary
        if self.long:
            axes["long"] = self.long
        if self.kind:
            axis, _, value = self.kind.partition("=")
            axes[axis] = value
        return axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a twin varies.

    Attributes:
        low: shortest prompt, tokens.
        high: longest prompt.
        answers: lengths of the answer, dealt out evenly.
        kinds: values of a further axis, "axis=value", dealt out evenly.
        at_boundaries: n-1, n and n+1 of each boundary of the server come first.
        past_a_page: every prompt is longer than a page, so that some of it can be cached.
        one_chunk: prompt and answer stay within one chunk of the server, where it tells its size.
        long: lengths far above `high`, of which one prompt each is asked.
        long_in_one_chunk: these too stay within one chunk.
        stride: odd; neighbouring prompts step by it, so residues of a power of two all come.
    """

    low: int
    high: int
    answers: Sequence[int]
    kinds: Sequence[str] = ("",)
    at_boundaries: bool = True
    past_a_page: bool = False
    one_chunk: bool = False
    long: tuple[int, ...] = ()
    long_in_one_chunk: bool = False
    stride: int = 9

    def fitted(self, room: Room) -> "Sweep":
        """Return the sweep with its limits drawn in to what this server can take."""
        low = max(self.low, (room.page or 0) + 2) if self.past_a_page else self.low
        high = max(self.high, low + 15)
        if room.limit_tokens is not None:
            high = min(high, room.limit_tokens - max(self.answers) - 8)
        if self.one_chunk and room.chunk is not None:
            high = min(high, room.chunk - 8)
        return replace(self, low=low, high=max(low, high))


def plans(sweep: Sweep, room: Room, *, seed: int | str, count: int) -> list[Plan]:
    """Return `count` prompts: boundaries first, then lengths whose residues have not come yet."""
    high = sweep.high
    draw = random.Random(f"twins {seed} {sweep.low} {high}")  # noqa: S311 - prompts, not secrets
    lengths: list[tuple[int, str]] = []
    if sweep.at_boundaries:
        edges = room.boundaries(sweep.low + 1, high - 1)
        if 3 * len(edges) > 2 * count // 3:  # the first, the last, and some between
            few = max(1, 2 * count // 9)
            edges = sorted(
                {edges[round(i * (len(edges) - 1) / max(1, few - 1))] for i in range(few)}
            )
        lengths = [(n + step, f"{n}{step:+d}") for n in edges for step in (-1, 0, 1)]
    lengths = lengths[:count] + _spread(sweep, high, draw, lengths, count - len(lengths))
    return _dealt_out(sweep, lengths, draw, f"{seed}")


def long_lengths(sweep: Sweep, room: Room, budget: Budget) -> tuple[int, ...]:
    """Return the lengths beyond a sweep that a budget asks and the server can take, ascending."""
    limits = [
        limit - SLACK_TOKENS
        for limit in (room.limit_tokens, room.chunk if sweep.long_in_one_chunk else None)
        if limit is not None
    ]
    most = min(limits, default=max(LONG[budget]))
    return tuple(length for length in LONG[budget] if 2 * sweep.high < length <= most)


def long_plans(sweep: Sweep, *, seed: int | str) -> list[Plan]:
    """Return one prompt of each long length; its residue is drawn."""
    return [
        plan
        for length in sweep.long
        for plan in fresh_of_class(sweep, f"long={length}", seed=f"{seed} first", count=1)
    ]


def fresh_of_class(sweep: Sweep, name: str, *, seed: int | str, count: int) -> list[Plan]:
    """Return new prompts of exactly one class; every other axis varies as in the sweep.

    Raises:
        ConfigError: no class of that name.
    """
    axis, _, value = name.partition("=")
    high = sweep.high
    draw = random.Random(f"twins class {seed} {name}")  # noqa: S311 - prompts, not secrets
    lengths = _spread(sweep, high, draw, (), count)
    if axis.startswith("residue_"):
        modulus, residue = int(axis.removeprefix("residue_")), int(value)
        lengths = [(_with_residue(n, modulus, residue, sweep.low, high), "") for n, _ in lengths]
    elif axis == "long":
        lengths = [(int(value) - draw.randrange(LONG_SPREAD), "") for _ in range(count)]
    elif axis == "boundary":
        sign = 1 if "+" in value else -1
        edge, _, step = value.replace("-", "+").partition("+")
        lengths = [(int(edge) + sign * int(step), value)] * count
    elif axis == "length_band":
        width = _band_width(sweep)
        begin = sweep.low + int(value) * width
        end = min(high, begin + width - 1)
        lengths = [(draw.randint(min(begin, end), end), "") for _ in range(count)]
    found = _dealt_out(sweep, lengths, draw, f"{seed} {name}")
    if axis == "long":
        return [replace(plan, long=int(value)) for plan in found]
    if axis == "answer_tokens":
        return [replace(plan, tokens=int(value)) for plan in found]
    if axis == "depth_frac":
        return [replace(plan, depth_frac=float(value)) for plan in found]
    if name in sweep.kinds:
        return [replace(plan, kind=name) for plan in found]
    if axis.startswith("residue_") or axis in {"boundary", "length_band"}:
        return found
    raise ConfigError(f"there is no class {name!r} of this twin")


def classes_of(sweep: Sweep, trial: Trial) -> list[str]:
    """Return the classes of a trial as "axis=value"."""
    cell: dict[str, Any] = trial.cell
    names = [f"residue_{m}={cell[f'residue_{m}']}" for m in MODULI if f"residue_{m}" in cell]
    if "boundary" in cell:
        names.append(f"boundary={cell['boundary']}")
    if len(set(sweep.answers)) > 1:
        names.append(f"answer_tokens={cell['answer_tokens']}")
    if "long" in cell:
        names.append(f"long={cell['long']}")
    else:
        names.append(
            f"length_band={(int(cell['length_tokens']) - sweep.low) // _band_width(sweep)}"
        )
    axes = {kind.partition("=")[0] for kind in sweep.kinds if kind}
    return names + [f"{axis}={cell[axis]}" for axis in sorted(axes) if axis in cell]


def _band_width(sweep: Sweep) -> int:
    return max(1, (sweep.high - sweep.low + 4) // 4)


def _with_residue(length: int, modulus: int, residue: int, low: int, high: int) -> int:
    nearest = length - (length - residue) % modulus
    if nearest < low:
        nearest += modulus
    return nearest if nearest <= high else nearest - modulus


def _spread(
    sweep: Sweep, high: int, draw: random.Random, taken: Sequence[tuple[int, str]], count: int
) -> list[tuple[int, str]]:
    """Return lengths that step through the range; residues that `taken` lacks come first."""
    width = max(1, high - sweep.low + 1)
    start = draw.randrange(width)
    found: list[int] = []
    residues = {length % 16 for length, _ in taken}
    later: list[int] = []
    for index in range(max(0, count) * 4):
        length = sweep.low + (start + sweep.stride * index) % width
        if length % 16 in residues:
            later.append(length)
        else:
            found.append(length)
            residues.add(length % 16)
    return [(length, "") for length in (found + later)[: max(0, count)]]


def _dealt_out(
    sweep: Sweep, lengths: Sequence[tuple[int, str]], draw: random.Random, seed: str
) -> list[Plan]:
    count = len(lengths)
    if not count:
        return []
    depths = dealt(DEPTHS_FRAC, count, draw)
    answers = dealt(list(sweep.answers), count, draw)
    kinds = dealt(list(sweep.kinds), count, draw)
    return [
        Plan(
            seed=f"{seed}-{index}",
            length=length,
            boundary=boundary,
            tokens=answers[index],
            depth_frac=depths[index],
            kind=kinds[index],
        )
        for index, (length, boundary) in enumerate(lengths)
    ]
