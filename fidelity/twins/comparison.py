"""Where and how far two arms part, and whether rounding can explain it.

A prompt agrees when no token lies further apart than rounding in the server's dtype may bring it,
their mean not further than a fifth of that, and no best token changes by more. The same is asked
of two identical requests: a prompt on which these part says nothing good of the server either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fidelity.statistics.divergence import Flip, Summary, rounding_bound, summarize
from fidelity.statistics.ladder import Difference, rung

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.statistics.divergence import ScoredToken
    from fidelity.words import Ladder

MEAN_SHARE = 0.2
"""Of the rounding bound: what a prompt's mean may reach (.05 nats in bfloat16, as the floor's)."""
_KEPT_GAPS = 160
"""Per-token differences kept of one trial: a journal line stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Two arms against each other; nats are absolute differences of one token's logprob.

    Attributes:
        nats: the largest.
        at: its position among the compared tokens.
        mean_nats: over the compared tokens.
        tokens: compared; up to the first that differs between the arms, inclusive.
        first: position of the first difference beyond `bound`, or of another token; None: none.
        gaps: by position.
        uncertain_nats: mean over tokens of top-1 probability < .9; None when all are sure.
        flips: best tokens that changed by more than rounding can.
        strayed: where the arms chose different tokens: how far apart these lie in nats, in the arm
            where that is more; None when they chose the same.
        lost: one arm has fewer tokens than the other, or another text from the same tokens.
        bound: what rounding may do to one token.
        shape: what differs in answers of the very same tokens and logprobs; "" if nothing.
    """

    nats: float
    at: int
    mean_nats: float
    tokens: int
    first: int | None
    gaps: tuple[float, ...]
    uncertain_nats: float | None
    flips: tuple[Flip, ...]
    strayed: float | None
    lost: bool
    bound: float
    shape: str = ""

    @property
    def agrees(self) -> bool:
        """Whether rounding can explain it."""
        within = self.nats <= self.bound and self.mean_nats <= MEAN_SHARE * self.bound
        tied = self.strayed is None or self.strayed <= self.bound
        return within and tied and not self.flips and not self.lost

    @property
    def equal(self) -> bool:
        """Whether every number is the same to the bit."""
        return self.nats == 0.0 and self.first is None and not self.lost

    @property
    def words(self) -> str:
        """Return it in a few words."""
        if self.shape:
            return f"the same tokens, another {self.shape}"
        if self.lost:
            return "other text or fewer tokens"
        if self.strayed is not None and self.strayed > self.bound:
            return f"another token at {self.first}, {self.strayed:.2g} nats from the first arm's"
        if self.flips:
            flip = self.flips[0]
            return f"another best token at {flip.position} by {flip.gap:.2g} nats"
        return f"{self.nats:.2g} nats at token {self.at}"


def part(
    one: Sequence[ScoredToken],
    other: Sequence[ScoredToken],
    *,
    dtype: str,
    shape: str = "",
    sampled: bool = False,
) -> Parting:
    """Compare two arms token by token.

    Args:
        one: arm a.
        other: arm b.
        dtype: that both were computed in.
        shape: what differs besides the tokens and logprobs, which are the same (text, usage).
        sampled: tokens were drawn: other ones convict only where the probabilities are equal.

    Raises:
        ValueError: an empty arm or a logprob that is not finite.
    """
    summary = summarize(one, other, dtype=dtype)
    gaps = _gaps(one, other, summary)
    bound = rounding_bound(dtype)
    beyond = next((at for at, gap in enumerate(gaps) if gap > bound), None)
    shorter = len(one) != len(other) and summary.first_divergence == min(len(one), len(other))
    own = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a.token_id != b.token_id),
        None,
    )
    first = min((at for at in (beyond, own) if at is not None), default=None)
    strayed = None if own is None else _apart(one[own], other[own])
    if sampled and own is not None and own < len(gaps) and max(gaps[: own + 1]) > 0.0:
        strayed = None
    return Parting(
        nats=summary.maximum,
        at=summary.maximum_at,
        mean_nats=summary.mean_abs,
        tokens=summary.n,
        first=first,
        gaps=gaps,
        uncertain_nats=summary.mean_abs_uncertain,
        flips=summary.flips,
        strayed=strayed,
        lost=bool(shape) or shorter,
        bound=bound,
        shape=shape,
    )


def part_texts(one: Sequence[Any], other: Sequence[Any]) -> Parting:
    """Compare two arms that tell no logprobs: tokens, or characters, are equal or not."""
    pairs = zip(one, other, strict=False)
    first = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
    if first is None and len(one) != len(other):
        first = min(len(one), len(other))
    return Parting(
        nats=0.0,
        at=first or 0,
        mean_nats=0.0,
        tokens=max(len(one), len(other)),
        first=first,
        gaps=(),
        uncertain_nats=None,
        flips=(),
        strayed=None,
        lost=first is not None,
        bound=0.0,
    )


def rung_of(twin: Parting, null: Parting) -> Ladder | None:
    """Return how bad the difference is; a null arm that parts itself is no floor."""
    return rung(
        Difference(
            equal=twin.equal,
            size=twin.nats,
            null_floor=max(null.nats if null.agrees else 0.0, twin.bound),
            selection_changed=bool(twin.flips) or (twin.strayed or 0.0) > twin.bound,
            lost=twin.lost,
        )
    )


def details_of(twin: Parting, null: Parting) -> dict[str, Any]:
    """Return the figures that the claim's floor and profile are made from, as JSON."""
    return {
        "gaps": [_short(gap) for gap in twin.gaps[:_KEPT_GAPS]],
        "null": {
            "nats": _short(null.nats),
            "uncertain": None if null.uncertain_nats is None else _short(null.uncertain_nats),
            "flips": [[flip.position, _short(flip.gap)] for flip in null.flips],
        },
        "flips": [[flip.position, _short(flip.gap)] for flip in twin.flips[:20]],
    }


@dataclass(frozen=True, slots=True)
class HeldNull:
    """A null arm as the journal holds it; what `judge_floor` needs."""

    mean_abs_uncertain: float | None
    flips: tuple[Flip, ...]


def held_null(details: Mapping[str, Any]) -> HeldNull | None:
    """Return the null arm of a trial, None where it has none."""
    null = details.get("null")
    if not isinstance(null, dict):
        return None
    flips = tuple(Flip(int(at), float(gap)) for at, gap in null["flips"])
    return HeldNull(null["uncertain"], flips)


def _apart(a: ScoredToken, b: ScoredToken) -> float:
    """Return how far the two arms' tokens lie apart in the arm that separates them more.

    A token that an arm does not list lies at least as far as the last that it lists; where it
    lists nothing but its own, nothing excuses the other.
    """
    return max(_from_own(own, other.token_id) for own, other in ((a, b), (b, a)))


def _from_own(own: ScoredToken, token_id: int) -> float:
    listed = {name: value for name, value in own.top if name != own.token_id}
    if token_id in listed:
        return abs(own.logprob - listed[token_id])
    return abs(own.logprob - min(listed.values())) if listed else math.inf


def _in(token_id: int, token: ScoredToken) -> float:
    """Return the logprob of an id at a position; of one that is not listed, the lowest listed."""
    listed = {token.token_id: token.logprob, **dict(token.top)}
    return listed.get(token_id, min(listed.values()))


def _gaps(
    one: Sequence[ScoredToken], other: Sequence[ScoredToken], summary: Summary
) -> tuple[float, ...]:
    pairs = zip(one[: summary.n], other[: summary.n], strict=True)
    return tuple(abs(_in(a.token_id, b) - a.logprob) for a, b in pairs)


def _short(value: float) -> float:
    """Return a number with three significant digits."""
    return float(f"{value:.3g}")
