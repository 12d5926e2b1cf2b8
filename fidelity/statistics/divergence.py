"""How far two arms lie apart, token by token: differences of logprobs, KL, flips of the argmax.

Both arms score the same tokens after the same context. k3 estimates KL(p || q) from the chosen
tokens alone; with the K best known on both sides one tail bucket gives a lower bound. Source for
k3: Schulman 2020, "Approximating KL divergence".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_TAIL_FLOOR = 1e-6
"""A tail mass below this is what rounding of the listed probabilities leaves, not a probability."""
_MOST_NATS = 700.0
UNCERTAIN = math.log(0.9)
"""A token is uncertain when its top-1 logprob is below this: certain ones move by nothing."""

_ROUNDING_NATS = {
    # order of summation over thousands of terms, some 1e4 unit roundoffs (2**-24)
    "float32": 1e-3,
    # 64 unit roundoffs of logits near 1: 2**-11 and 2**-8; paths of other shape stay below
    "float16": 0.03,
    "bfloat16": 0.25,
    # weights or keys rounded to 8 and 4 bits, everything else in bfloat16: between two engines
    "float8": 0.5,
    "int8": 0.5,
    "float4": 1.0,
    "int4": 1.0,
}
_SPELLINGS = {
    "fp32": "float32",
    "f32": "float32",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "float8_e4m3fn": "float8",
    "fp4": "float4",
    "mxfp4": "float4",
    "nvfp4": "float4",
    "q8": "int8",
    "q4": "int4",
}
DTYPES = tuple(_ROUNDING_NATS)
"""Names by which a deployment may declare what it computes in."""


class ScoredToken(NamedTuple):
    """One token of an arm: its logprob in nats, and the best alternatives as (id, logprob).

    `top` may be in any order, and may or may not hold the token itself.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Flip(NamedTuple):
    """The arms' best tokens differ at `position`; `gap` between best and second, in nats."""

    position: int
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Two arms compared; differences are arm b minus arm a, in nats, per token.

    Attributes:
        n: tokens compared: all, or up to the first where the arms' own tokens differ, inclusive.
        mean: of the differences, with their signs.
        mean_abs: of their sizes.
        mean_abs_uncertain: the same over tokens of top-1 probability < .9; None when all are sure.
        p99: of their sizes, by nearest rank.
        maximum: of their sizes; `maximum_at` is its position.
        kl: KL(a || b) by k3 over the chosen tokens.
        kl_top: mean lower bound over the listed alternatives; None when none are listed.
        top1_agreement: share of positions with the same best token in both arms; 1.0 unlisted.
        first_divergence: first position of another best token, or of another token of its own.
        first_divergence_gap: there, the larger of the arms' gaps between their own best token and
            the other arm's; None when neither arm lists alternatives.
        flips: positions of another best token whose gap exceeds the rounding bound.
    """

    n: int
    mean: float
    mean_abs: float
    mean_abs_uncertain: float | None
    p99: float
    maximum: float
    maximum_at: int
    kl: float
    kl_top: float | None
    top1_agreement: float
    first_divergence: int | None
    first_divergence_gap: float | None
    flips: tuple[Flip, ...]


def rounding_bound(dtype: str | None = None) -> float:
    """Return how far rounding in this dtype may move a logprob, in nats; bfloat16 when not told.

    Raises:
        ValueError: a dtype that is not known; names the known ones.
    """
    name = (dtype or "bfloat16").lower().removeprefix("torch.")
    bound = _ROUNDING_NATS.get(_SPELLINGS.get(name, name))
    if bound is None:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(sorted(_ROUNDING_NATS))}")
    return bound


def k3(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """Return the estimate of KL(p || q) per token, >= 0: exp(d) - 1 - d with d = q - p.

    Args:
        p: logprobs of the chosen tokens, drawn from or given to both arms.
        q: of the same tokens in the other arm.

    Raises:
        ValueError: different lengths.
    """
    differences = (b - a for a, b in zip(p, q, strict=True))
    return [math.expm1(min(d, _MOST_NATS)) - d for d in differences]


def kl_topk(p_top: Mapping[int, float], q_top: Mapping[int, float]) -> float:
    """Return a lower bound of KL(p || q), >= 0, from the alternatives that both sides list.

    Ids that only one side lists join the tail, one bucket: merging outcomes only lowers KL.
    """
    shared = [
        t for t in p_top if t in q_top and math.isfinite(p_top[t]) and math.isfinite(q_top[t])
    ]
    p_tail = max(0.0, 1.0 - sum(math.exp(p_top[token]) for token in shared))
    q_tail = max(_TAIL_FLOOR, 1.0 - sum(math.exp(q_top[token]) for token in shared))
    total = sum(math.exp(p_top[token]) * (p_top[token] - q_top[token]) for token in shared)
    if p_tail > _TAIL_FLOOR:
        total += p_tail * math.log(p_tail / q_tail)
    return max(0.0, total)


def summarize(
    arm_a: Sequence[ScoredToken], arm_b: Sequence[ScoredToken], *, dtype: str | None = None
) -> Summary:
    """Compare two arms token by token; `dtype` is the coarser of what both declare.

    Arms that generated their own tokens are compared up to the first that differs: there the
    logprob of a's token in b is taken from b's alternatives (where unlisted: their lowest, so that
    the difference is understated). One that is merely shorter diverges at its end.

    Raises:
        ValueError: an empty arm, an unknown dtype, or a logprob that is not finite.
    """
    if not arm_a or not arm_b:
        raise ValueError("an arm without tokens cannot be compared")
    own = _own_divergence(arm_a, arm_b)
    n = min(len(arm_a), len(arm_b)) if own is None else min(own + 1, len(arm_a), len(arm_b))
    pairs = list(zip(arm_a[:n], arm_b[:n], strict=True))
    p = [_finite(a.logprob) for a, _ in pairs]
    q = [_logprob_of(a.token_id, b) for a, b in pairs]
    sizes = [abs(y - x) for x, y in zip(p, q, strict=True)]
    best = [(_best(a), _best(b)) for a, b in pairs]
    turns = {
        i: _gap(*pairs[i], a, b)
        for i, (a, b) in enumerate(best)
        if a is not None and b is not None and a != b
    }
    first = min((i for i in (*turns, own) if i is not None), default=None)
    listed = [(dict(a.top), dict(b.top)) for a, b in pairs if a.top and b.top]
    uncertain = [d for d, (a, _) in zip(sizes, pairs, strict=True) if _highest(a) < UNCERTAIN]
    bound = rounding_bound(dtype)
    return Summary(
        n=n,
        mean=sum(y - x for x, y in zip(p, q, strict=True)) / n,
        mean_abs=sum(sizes) / n,
        mean_abs_uncertain=sum(uncertain) / len(uncertain) if uncertain else None,
        p99=quantile(sizes, 0.99),
        maximum=max(sizes),
        maximum_at=sizes.index(max(sizes)),
        kl=sum(k3(p, q)) / n,
        kl_top=sum(kl_topk(a, b) for a, b in listed) / len(listed) if listed else None,
        top1_agreement=1.0 - len(turns) / n,
        first_divergence=first,
        first_divergence_gap=None if first is None else turns.get(first),
        flips=tuple(Flip(i, gap) for i, gap in turns.items() if gap > bound),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all do not exceed (nearest rank).

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values have no quantile")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _own_divergence(arm_a: Sequence[ScoredToken], arm_b: Sequence[ScoredToken]) -> int | None:
    """Return the first position at which the arms' own tokens differ, or one arm has ended."""
    for place, (a, b) in enumerate(zip(arm_a, arm_b, strict=False)):
        if a.token_id != b.token_id:
            return place
    return None if len(arm_a) == len(arm_b) else min(len(arm_a), len(arm_b))


def _finite(logprob: float) -> float:
    if not math.isfinite(logprob):
        raise ValueError(f"a logprob of {logprob} cannot be compared")
    return logprob


def _listed(token: ScoredToken) -> dict[int, float]:
    top = {name: value for name, value in token.top if math.isfinite(value)}
    return {token.token_id: token.logprob, **top}


def _best(token: ScoredToken) -> int | None:
    """Return the best listed token, of equals the lowest id; None where no alternatives tell."""
    if not token.top:
        return None
    listed = _listed(token)
    return max(listed, key=lambda name: (listed[name], -name))


def _highest(token: ScoredToken) -> float:
    return max(_listed(token).values())


def _logprob_of(token_id: int, token: ScoredToken) -> float:
    """Return the logprob of an id here; where it is not listed, the lowest that is: too high."""
    listed = _listed(token)
    return _finite(listed.get(token_id, min(listed.values())))


def _gap(a: ScoredToken, b: ScoredToken, best_a: int, best_b: int) -> float:
    """Return the larger distance from an arm's best token to the other arm's best."""
    return max(
        _highest(a) - _logprob_of(best_b, a),
        _highest(b) - _logprob_of(best_a, b),
    )
