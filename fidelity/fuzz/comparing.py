"""One answer against the same messages alone: facts, foreign facts, and numbers token by token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.fuzz.isolation import Alone
from fidelity.probes.scoring import Answer, Expected, names_code, score
from fidelity.statistics.divergence import ScoredToken, rounding_bound, summarize
from fidelity.statistics.ladder import Difference, rung
from fidelity.words import Ladder, Score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.replies import Reply
    from fidelity.fuzz.playing import Played


LISTED_BOUNDS = 2.0
"""A rival's logprob is a difference of two logits, and each of them is rounded."""
TAIL_NATS = -7.0
"""Rivals below this in both arms say nothing where logits have less than 32 bits: one step of a
large logit is many times the bound, and a token of probability 1e-3 decides no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison found.

    Attributes:
        ok: True agrees, False does not, None says nothing.
        rung: how bad; None when no numbers were compared and nothing is wrong.
        sentence: what was found.
        size: greatest difference of logprobs in nats; None without numbers.
        score: of the answer against its known fact.
    """

    ok: bool | None
    rung: Ladder | None = None
    sentence: str = ""
    size: float | None = None
    score: Score | None = None


def compare(
    played: Played, beside: Alone, *, facts: Mapping[str, str], dtype: str | None
) -> Compared:
    """Compare an answer with the same messages alone.

    Args:
        played: the answer.
        beside: the isolated one.
        facts: code -> conversation, of the whole script.
        dtype: of the server; None counts as bfloat16.
    """
    here, there = _scored(played, played.reply), _scored(played, beside.reply)
    leaked = foreign(played, facts)
    if leaked:
        owner = facts[leaked[0]]
        return Compared(
            ok=False,
            rung=rung(Difference(foreign=True)),
            sentence=f"{played.label} says {leaked[0]}, which only {owner} was told",
            score=here,
        )
    if played.chat.temperature > 0:
        return Compared(ok=True, score=here)
    if beside.trouble:
        return Compared(ok=None, sentence=beside.trouble, score=here)
    lost = there is Score.RIGHT and here not in {Score.RIGHT, Score.CUT, None}
    numbers = _numbers(played.reply, beside.reply) if beside.same_tokens else None
    if numbers is None:
        return _by_answers(played, beside, lost=lost, score=here)
    return _by_numbers(played, beside, numbers, lost=lost, dtype=dtype, score=here)


def foreign(played: Played, facts: Mapping[str, str]) -> list[str]:
    """Return the script's facts that an answer names and its messages do not hold."""
    answer = Answer.of(played.reply)
    text = f"{answer.said}\n{answer.reasoning}"
    seen = "\n".join(str(message.get("content", "")) for message in played.messages)
    return [code for code in facts if code not in seen and names_code(text, code)]


def _scored(played: Played, reply: Reply) -> Score | None:
    chat = played.chat
    if not chat.expect:
        return None
    return score(Answer.of(reply), Expected(right=chat.expect, distractors=chat.others))


def _by_answers(played: Played, beside: Alone, *, lost: bool, score: Score | None) -> Compared:
    """Without numbers only a known fact tells: texts may part at a tie."""
    if not lost:
        return Compared(ok=True, score=score)
    return Compared(
        ok=False,
        rung=rung(Difference(lost=True)),
        sentence=f"{played.label}: {_said(played.reply)}, alone {_said(beside.reply)}",
        score=score,
    )


Numbers = tuple[list[ScoredToken], list[ScoredToken]]


def _by_numbers(
    played: Played,
    beside: Alone,
    numbers: Numbers,
    *,
    lost: bool,
    dtype: str | None,
    score: Score | None,
) -> Compared:
    bound = LISTED_BOUNDS * rounding_bound(dtype)
    found = summarize(*numbers, dtype=dtype)
    parted = [t.token_id for t in numbers[0]] != [t.token_id for t in numbers[1]]
    turned = bool(found.flips) or (parted and (found.first_divergence_gap or 0.0) > bound)
    size, place = _largest(*numbers, count=found.n, bound=bound, floor=_floor(dtype))
    level = rung(
        Difference(
            equal=size == 0.0 and not parted,
            size=size,
            null_floor=bound,
            selection_changed=turned,
            lost=lost and turned,
        )
    )
    if not turned and size <= bound:  # texts that part at a tie say nothing from there on
        return Compared(ok=True, rung=level, size=size, score=score)
    words = f"{_said(played.reply)}, alone {_said(beside.reply)}"
    if not parted:
        words = f"{_said(played.reply)} both times"
    return Compared(
        ok=False,
        rung=level,
        sentence=(
            f"{played.label}: {words}; logprobs differ by up to {size:.3g} nats at token"
            f" {place + 1}, rounding explains {bound:g}"
        ),
        size=size,
        score=score,
    )


def _largest(
    one: Sequence[ScoredToken],
    other: Sequence[ScoredToken],
    *,
    count: int,
    bound: float,
    floor: float,
) -> tuple[float, int]:
    """Return the greatest difference of any listed logprob in the first tokens, and its place.

    A sure token's own logprob is 0 whatever was read; its listed rivals tell of the state. Those
    below the floor in both arms count only where the chosen token moved too.
    """
    sizes = [(0.0, 0)]
    for place, (a, b) in enumerate(zip(one[:count], other[:count], strict=True)):
        listed = {**dict(b.top), b.token_id: b.logprob}
        mine = {**dict(a.top), a.token_id: a.logprob}
        moved = abs(a.logprob - listed.get(a.token_id, a.logprob)) > bound
        sizes += [
            (abs(mine[t] - listed[t]), place)
            for t in mine
            if t in listed and (moved or max(mine[t], listed[t]) >= floor)
        ]
    return max(sizes)


def _floor(dtype: str | None) -> float:
    """Return below which logprob a rival says nothing; in float32 a tail is as exact as any."""
    exact = rounding_bound(dtype) <= rounding_bound("float32")
    return -math.inf if exact else TAIL_NATS


def _numbers(one: Reply, other: Reply) -> Numbers | None:
    """Return both answers' tokens with numbers, under ids that they share; None without them."""
    if not one.logprobs or not other.logprobs:
        return None
    ids: dict[str, int] = {}

    def name(token: str, token_id: int | None) -> int:
        return token_id if token_id is not None else ids.setdefault(token, -1 - len(ids))

    arms = []
    for reply in (one, other):
        arm = []
        for token in reply.logprobs or ():
            if token.logprob is None or not math.isfinite(token.logprob):
                return None
            top = tuple((name(t.token, t.token_id), t.logprob) for t in token.top)
            arm.append(ScoredToken(name(token.token, token.token_id), token.logprob, top))
        arms.append(arm)
    return arms[0], arms[1]


def _said(reply: Reply) -> str:
    text = " ".join((reply.text or reply.reasoning)[:400].split())
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
