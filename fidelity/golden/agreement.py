"""Do two arms of one text agree up to rounding, in every class of its tokens?

Rounding moves every token a little, everywhere alike; a fault moves some of them far: those of a
residue, those beyond a length, or the answer that had to be read from the context. So a token
counts as moved when its logprob, or its lead as the best token, changed by more than the declared
dtype can round, and the share of moved tokens is judged in every class, never in the whole alone.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scipy.special import bdtrc

from fidelity.statistics.divergence import (
    UNCERTAIN,
    ScoredToken,
    Summary,
    rounding_bound,
    summarize,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MOVED_SHARE = 0.05
"""Of a class's open tokens: so many may exceed the rounding bound, which is no hard limit."""
ALPHA_TEXT = 0.01
"""Chance that a text of `MOVED_SHARE` everywhere is called moved, over all of its classes."""
MODULI = (4, 16, 64, 128)
PARTS = 8
FLOOR_NATS = 0.05
"""Most that a deployment may differ from itself: mean |difference| over uncertain tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A class of tokens with significantly too many moved ones."""

    name: str
    moved: int
    n: int

    def __str__(self) -> str:
        return f"{self.name} ({self.moved} of {self.n})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How one text came out. `details` is the same as JSON, with sums for a profile."""

    summary: Summary
    classes: tuple[Moved, ...]
    details: dict[str, Any]

    @property
    def ok(self) -> bool:
        """True when no class has too many moved tokens."""
        return not self.classes


def agreement(
    golden: Sequence[ScoredToken],
    measured: Sequence[ScoredToken],
    *,
    dtype: str,
    answer_at: int,
) -> Agreement:
    """Compare two arms of one text; position 0 here is token 1 of the text.

    Raises:
        ValueError: arms that cannot be compared, or an unknown dtype.
    """
    summary = summarize(golden, measured, dtype=dtype)
    bound = rounding_bound(dtype)
    flipped = {flip.position for flip in summary.flips}
    sizes = [abs(b.logprob - a.logprob) for a, b in zip(golden, measured, strict=True)]
    is_open = [_is_open(a, b) for a, b in zip(golden, measured, strict=True)]
    moved = [d > bound or i in flipped for i, d in enumerate(sizes)]
    counts = _counts(moved, is_open, answer_at)
    level = ALPHA_TEXT / max(1, len(counts))
    worst = sorted(
        (
            Moved(name=name, moved=k, n=n)
            for name, (k, n) in counts.items()
            if _too_many(k, n, level)
        ),
        key=lambda found: float(bdtrc(found.moved - 1, found.n, MOVED_SHARE)),
    )
    total, opened = counts.get("all tokens", (0, 0))
    return Agreement(
        summary=summary,
        classes=tuple(worst),
        details={
            **{name: value for name, value in asdict(summary).items() if name != "flips"},
            "flips": len(summary.flips),
            "open": opened,
            "moved": total,
            "classes": [str(found) for found in worst[:6]],
            "bias": _bias(golden, measured, is_open),
            "answer_loss": _answer_loss(golden, measured, answer_at),
            "repeats": not flipped and (summary.mean_abs_uncertain or 0.0) <= FLOOR_NATS,
            "tie": _is_tie(summary, bound),
            "parts": f"too many tokens moved: {', '.join(map(str, worst[:2]))}" if worst else "",
            "eighths": _sums(sizes, is_open, moved, lambda i: i * PARTS // len(sizes), PARTS),
            "positions": _sums(sizes, is_open, moved, _octave, 16),
            "residues": _sums(sizes, is_open, moved, lambda i: (i + 1) % MODULI[-1], MODULI[-1]),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How two greedy continuations of one prompt came out; `value` is the mean |difference|."""

    ok: bool
    value: float
    details: dict[str, Any]


def continuation(
    golden: Sequence[ScoredToken], measured: Sequence[ScoredToken], *, dtype: str
) -> Continuation:
    """Compare two continuations up to the first token that differs.

    They agree when that token is a tie which rounding may turn, and not too many of those before
    it moved. Of two that never differ the shorter one's tokens are compared: one may end early by
    its own rule of what ends an answer.

    Raises:
        ValueError: an empty continuation, or a logprob that is not finite.
    """
    n = min(len(golden), len(measured))
    summary = summarize(golden[:n], measured[:n], dtype=dtype)
    bound = rounding_bound(dtype)
    same = n if summary.first_divergence is None else summary.first_divergence
    pairs = list(zip(golden[:same], measured[:same], strict=True))
    opened = [(a, b) for a, b in pairs if _is_open(a, b)]
    moved = sum(abs(a.logprob - b.logprob) > bound for a, b in opened)
    tie = _is_tie(summary, bound)
    ok = tie is not False and not _too_many(moved, len(opened), ALPHA_TEXT)
    told = f"{moved} of {len(opened)} open tokens moved"
    if tie is False:
        gap = summary.first_divergence_gap
        size = "by an unknown gap" if gap is None else f"by a gap of {gap:.2g} nats"
        told = f"another token at place {same + 1} of the answer, {size}"
    return Continuation(
        ok=ok,
        value=summary.mean_abs,
        details={
            "parts": "" if ok else told,
            "tokens": n,
            "same": same,
            "moved": moved,
            "open": len(opened),
            "tie": tie,
            "gap": summary.first_divergence_gap,
        },
    )


def _is_open(a: ScoredToken, b: ScoredToken) -> bool:
    """True when an arm is not certain of its best token, or both are, of two different ones.

    Of the others nothing can be told: rounding moves no logprob that is nearly 0.
    """
    best = [max([(t.logprob, -t.token_id), *((v, -i) for i, v in t.top)]) for t in (a, b)]
    return min(best[0][0], best[1][0]) < UNCERTAIN or best[0][1] != best[1][1]


def _counts(
    moved: Sequence[bool], is_open: Sequence[bool], answer_at: int
) -> dict[str, tuple[int, int]]:
    """Return moved and open tokens of every class that has open ones."""
    counts: dict[str, list[int]] = {}
    for i, (far, free) in enumerate(zip(moved, is_open, strict=True)):
        if not free:
            continue
        names = ["all tokens", f"eighth {i * PARTS // len(moved) + 1} of the text"]
        names += [f"position = {(i + 1) % m} mod {m}" for m in MODULI]
        names += ["the answer"] if i >= answer_at else []
        for name in names:
            held = counts.setdefault(name, [0, 0])
            held[0] += far
            held[1] += 1
    return {name: (k, n) for name, (k, n) in counts.items()}


def _too_many(k: int, n: int, level: float) -> bool:
    return k > 0 and float(bdtrc(k - 1, n, MOVED_SHARE)) < level


def _bias(
    golden: Sequence[ScoredToken], measured: Sequence[ScoredToken], is_open: Sequence[bool]
) -> float | None:
    """Return the mean difference of open tokens, signed: measured minus golden; None without."""
    shifts = [
        b.logprob - a.logprob for a, b, free in zip(golden, measured, is_open, strict=True) if free
    ]
    return sum(shifts) / len(shifts) if shifts else None


def _answer_loss(
    golden: Sequence[ScoredToken], measured: Sequence[ScoredToken], answer_at: int
) -> float:
    """Return how many nats the answer lost against the golden."""
    return sum(a.logprob for a in golden[answer_at:]) - sum(b.logprob for b in measured[answer_at:])


def _is_tie(summary: Summary, bound: float) -> bool | None:
    """True when the first divergence is a tie that rounding may turn; None without one."""
    if summary.first_divergence is None:
        return None
    gap = summary.first_divergence_gap
    return gap is not None and gap <= bound


def _octave(place: int) -> int:
    return min(15, int(math.log2(place + 1)))


def _sums(
    sizes: Sequence[float],
    is_open: Sequence[bool],
    moved: Sequence[bool],
    bin_of: Any,
    bins: int,
) -> list[list[float]]:
    """Return [open tokens, sum of |difference|, moved tokens] of every bin."""
    sums = [[0.0, 0.0, 0.0] for _ in range(bins)]
    for i, (size, free, far) in enumerate(zip(sizes, is_open, moved, strict=True)):
        if free:
            held = sums[bin_of(i)]
            held[0] += 1
            held[1] += size
            held[2] += far
    return [[n, round(total, 6), far] for n, total, far in sums]
