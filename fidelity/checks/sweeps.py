"""Which needles a sweep asks for: lengths, depths, residues, boundaries, classes that missed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fidelity.checks.answering import ANSWER_TOKENS
from fidelity.checks.dealing import dealt
from fidelity.checks.recall import DEPTHS_FRAC, MODULI, SHORTEST_TOKENS, needle_probe
from fidelity.errors import ConfigError
from fidelity.probes.needles import NeedleKind

if TYPE_CHECKING:
    from fidelity.probes.probe import Probe
    from fidelity.records import Trial
    from fidelity.verdicts.opened import OpenedClass

_STRIDE = 9
"""Odd: steps of nine visit every residue of a power of two before any comes twice."""


def sweep(
    *, seed: int, row_tokens: int, trials: int, kinds: Sequence[NeedleKind], repeated: bool = False
) -> list[Probe]:
    """Return the probes of one length: depths and kinds balanced, residues all different.

    Lengths step down from `row_tokens` so that any 16 neighbouring trials hold each residue of 16
    once and each residue of 4 four times; 64 hold each of 64. Depth and kind are dealt out
    independently of the residue. Where no kind fits, single needles are asked if they are meant.

    Raises:
        ConfigError: no kind fits a prompt of that length.
    """
    usable = [kind for kind in kinds if row_tokens - 64 >= SHORTEST_TOKENS[kind]]
    usable = usable or [kind for kind in kinds if kind is NeedleKind.SINGLE]
    if not usable:
        raise ConfigError(f"a prompt of {row_tokens} tokens is too short for: {', '.join(kinds)}")
    draw = random.Random(f"sweep {seed} {row_tokens}")  # noqa: S311 - prompts, not secrets
    depths = dealt(DEPTHS_FRAC, trials, draw)
    dealt_kinds = dealt(usable, trials, draw)
    start = draw.randrange(64)
    return [
        needle_probe(
            seed=f"{seed}-{row_tokens}-{index}",
            row_tokens=row_tokens,
            prompt_tokens=row_tokens - (start + _STRIDE * index) % 64,
            depth_frac=depths[index],
            kind=dealt_kinds[index],
            repeated=repeated,
        )
        for index in range(trials)
    ]


def residue_sweep(*, seed: int, first_tokens: int, count: int) -> list[Probe]:
    """Return probes of `count` neighbouring lengths: each residue of a divisor once or more."""
    draw = random.Random(f"residues {seed} {first_tokens}")  # noqa: S311 - prompts, not secrets
    depths = dealt(DEPTHS_FRAC, count, draw)
    return [
        needle_probe(
            seed=f"{seed}-residue-{first_tokens + step}",
            row_tokens=first_tokens,
            prompt_tokens=first_tokens + step,
            depth_frac=depths[step],
        )
        for step in range(count)
    ]


def boundary_sweep(*, seed: int, boundaries: Iterable[int], limit_tokens: int) -> list[Probe]:
    """Return probes of n-1, n and n+1 tokens around each boundary that fits the limits."""
    shortest = SHORTEST_TOKENS[NeedleKind.SINGLE]
    usable = sorted({n for n in boundaries if shortest < n < limit_tokens})
    draw = random.Random(f"boundaries {seed}")  # noqa: S311 - prompts, not secrets
    depths = dealt(DEPTHS_FRAC, 3 * len(usable), draw)
    return [
        needle_probe(
            seed=f"{seed}-boundary-{boundary}-{offset}",
            row_tokens=boundary,
            prompt_tokens=boundary + offset,
            depth_frac=depths[3 * index + place],
            boundary=f"{boundary}{offset:+d}",
        )
        for index, boundary in enumerate(usable)
        for place, offset in enumerate((-1, 0, 1))
    ]


def classes_of(trial: Trial) -> list[str]:
    """Return the classes of a needle trial, as "axis=value"."""
    axes = ["boundary", "length_tokens", "depth_frac", "needle_kind"]
    axes += [f"residue_{modulus}" for modulus in MODULI]
    return [f"{axis}={trial.cell[axis]}" for axis in axes if axis in trial.cell]


def classes_beside_kind(trial: Trial) -> list[str]:
    """Return the classes of a trial of a sweep that asks one kind of needle."""
    return [name for name in classes_of(trial) if not name.startswith("needle_kind=")]


def fresh_of_class(
    name: str,
    count: int,
    *,
    seed: int,
    row_tokens: Sequence[int],
    kind: NeedleKind = NeedleKind.SINGLE,
) -> list[Probe]:
    """Return new probes of exactly one class; every other axis varies as in the sweep.

    Args:
        name: "axis=value" as `classes_of` says it.
        count: of probes.
        seed: of the run.
        row_tokens: lengths of the sweep; classes other than a length are asked at its short ones.
        kind: of needle, where the class is not one itself.

    Raises:
        ConfigError: no class of that name.
    """
    axis, _, value = name.partition("=")
    draw = random.Random(f"class {seed} {name}")  # noqa: S311 - prompts, not secrets
    short = [row for row in sorted(row_tokens) if row >= SHORTEST_TOKENS[NeedleKind.KEY_VALUE]]
    rows = dealt(short[:3] or list(row_tokens), count, draw)
    depths = dealt(DEPTHS_FRAC, count, draw)
    kinds = [kind] * count
    lengths = [row - draw.randrange(64) for row in rows]
    bounds = [""] * count
    match axis:
        case "length_tokens":
            rows = [int(value)] * count
            lengths = [
                rows[0] - (_STRIDE * index) % min(64, rows[0] // 2) for index in range(count)
            ]
        case "depth_frac":
            depths = [float(value)] * count
        case "needle_kind":
            kinds = [NeedleKind(value)] * count
            lengths = [max(n, SHORTEST_TOKENS[kinds[0]]) for n in lengths]
        case "boundary":
            lengths = [_length_of_boundary(value)] * count
            bounds = [value] * count
        case _ if axis.startswith("residue_"):
            modulus = int(axis.removeprefix("residue_"))
            lengths = [n - (n - int(value)) % modulus for n in lengths]
        case _:
            raise ConfigError(f"there is no class {name!r} of needle trials")
    return [
        needle_probe(
            seed=f"{seed}-class-{name}-{index}",
            row_tokens=rows[index],
            prompt_tokens=lengths[index],
            depth_frac=depths[index],
            kind=kinds[index],
            boundary=bounds[index],
        )
        for index in range(count)
    ]


def _length_of_boundary(name: str) -> int:
    """Return the tokens of "512+1", "512-1" or "512+0"."""
    sign = 1 if "+" in name else -1
    boundary, _, offset = name.replace("-", "+").partition("+")
    return int(boundary) + sign * int(offset)


def row_lengths(shortest: int, longest: int, limit_tokens: int | None) -> list[int]:
    """Return lengths that double from the shortest; the last is the longest that fits.

    Args:
        shortest: first length.
        longest: of the budget.
        limit_tokens: of the deployment, prompt and answer together; None when unknown.
    """
    most = longest if limit_tokens is None else min(longest, limit_tokens - ANSWER_TOKENS)
    rows: list[int] = []
    length = shortest
    while length <= most:
        rows.append(length)
        length *= 2
    if limit_tokens is not None and most < longest and (not rows or most > 1.2 * rows[-1]):
        rows.append(most)
    return rows


def by_length(
    trials: Sequence[Trial], opened: Sequence[OpenedClass], rows: Sequence[int]
) -> dict[int, list[Trial]]:
    """Return the trials of each length of the sweep, with those of its second stage."""
    fresh = {found.name: found.trials for found in opened}
    return {
        row: [
            *(t for t in trials if t.cell.get("length_tokens") == row and "boundary" not in t.cell),
            *fresh.get(f"length_tokens={row}", ()),
        ]
        for row in rows
    }
