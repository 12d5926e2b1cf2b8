"""Texts that two deployments score: lengths by residue, a fact at every depth, its answer last.

A trial is one text. It is ok when no class of its tokens (all, the answer, a residue of the
position, an eighth of the text) has significantly more than a few of them moved beyond rounding.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.dealing import dealt
from fidelity.checks.recall import DEPTHS_FRAC, MODULI, fit_needle, residues
from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.golden.agreement import agreement, continuation
from fidelity.probes.given_text import GivenText, GivenToken, generated, rendered, score
from fidelity.probes.needles import NeedleKind, draw_needle
from fidelity.probes.probe import Ask, Probe, ProbeResult, Script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.deployment.deployment import Deployment
    from fidelity.records import Trial
    from fidelity.statistics.divergence import ScoredToken

TOPS = 5
CONTINUED_TOKENS = 24
_QUESTION_TOKENS = 40
_STRIDE = 9
_ALTERED_AT = 24
"""Position of the token that the positive control alters: early, and behind any chat header."""
_SPELLED_OTHERWISE = 0.2
"""Share of tokens that two servers may spell otherwise; two vocabularies differ in nearly all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two deployments that are compared; `dtype` is the coarser of what they compute in."""

    golden: Deployment
    dtype: str

    @property
    def limit_tokens(self) -> int | None:
        """Longest context of the golden; None when unknown."""
        return self.golden.capabilities.max_model_len


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One text to be scored: where it lies in the sweep, and what its prompt is drawn from."""

    seed: str
    row_tokens: int
    tokens: int
    depth_frac: float

    @property
    def cell(self) -> dict[str, str | int | float]:
        """Axes of the sweep."""
        axes: dict[str, str | int | float] = {
            "length_tokens": self.row_tokens,
            "depth_frac": self.depth_frac,
        }
        return axes | residues(self.tokens)


def sweep(*, seed: str, rows: dict[int, int]) -> list[Text]:
    """Return texts: `rows` maps a length to how many; residues are dealt out, depths balanced."""
    texts: list[Text] = []
    for row, count in rows.items():
        draw = random.Random(f"golden {seed} {row}")  # noqa: S311 - prompts, not secrets
        depths = dealt(DEPTHS_FRAC, count, draw)
        start = draw.randrange(64)
        texts += [
            Text(
                seed=f"{seed}-golden-{row}-{index}",
                row_tokens=row,
                tokens=row - (start + _STRIDE * index) % 64,
                depth_frac=depths[index],
            )
            for index in range(count)
        ]
    return texts


def classes_of(trial: Trial) -> list[str]:
    """Return the classes of a text, as "axis=value"."""
    axes = ["length_tokens", "depth_frac", *(f"residue_{modulus}" for modulus in MODULI)]
    return [f"{axis}={trial.cell[axis]}" for axis in axes if axis in trial.cell]


def fresh_of_class(name: str, count: int, *, seed: int, rows: Sequence[int]) -> list[Text]:
    """Return new texts of exactly one class; other axes vary as in the sweep, at short lengths."""
    axis, _, value = name.partition("=")
    short = sorted(rows)[:3]
    texts = sweep(
        seed=f"{seed}-class-{name}",
        rows={int(value): count}
        if axis == "length_tokens"
        else {row: -(-count // len(short)) for row in short},
    )[:count]
    if axis == "depth_frac":
        return [replace(text, depth_frac=float(value)) for text in texts]
    if axis.startswith("residue_"):
        modulus = int(axis.removeprefix("residue_"))
        return [replace(t, tokens=t.tokens - (t.tokens - int(value)) % modulus) for t in texts]
    return texts


def compared(text: Text, pair: Pair, *, altered: bool = False) -> Probe:
    """Return a probe that scores one text by both deployments.

    Args:
        text: what to score.
        pair: the golden beside the deployment that is measured.
        altered: the damage of the positive control: one token of the measured side's text is
            exchanged early; the trial is ok when the comparison does *not* see it there.
    """

    async def script(ask: Ask) -> ProbeResult:
        given = await _text(ask, text)
        ids = list(given.ids)
        if altered:
            ids[_ALTERED_AT] = _another(ids)
        mine = await score(ask, ids, tops=TOPS, label="measured")
        theirs = await _by_golden(ask, pair, given)
        by_text = _common_words(mine, theirs, skip=_ALTERED_AT - 1 if altered else None)
        arms = [[token.scored(by_text=by_text) for token in arm] for arm in (theirs, mine)]
        if altered:
            seen = _seen_at(arms, _ALTERED_AT - 1)
            return ProbeResult(ok=not seen, cell=residues(len(ids)))
        found = agreement(*arms, dtype=pair.dtype, answer_at=given.answer_at - 1)
        return ProbeResult(
            ok=found.ok,
            value=found.summary.kl_top,
            cell=residues(len(ids)),
            details=found.details,
        )

    return _probe(text, script, "altered" if altered else "compared", requests=2)


def continued(text: Text, pair: Pair, *, altered: bool = False) -> Probe:
    """Return a probe that lets both deployments continue one prompt, greedily: the decode path.

    They are compared up to the first token that differs, which must be a tie that rounding turns.

    Args:
        text: whose prompt is continued.
        pair: the golden beside the deployment that is measured.
        altered: the damage of the positive control: the measured side's prompt loses its fact.
    """

    async def script(ask: Ask) -> ProbeResult:
        given = await _text(ask, text, with_answer=False)
        prompt = list(given.ids[: given.answer_at])
        mine = await _continue(ask, _without_middle(prompt) if altered else prompt, "measured")
        golden = Ask(pair.golden.client)
        try:
            theirs = await _continue(golden, prompt, "golden")
        except EndpointError as trouble:
            raise _GoldenTrouble(f"the golden deployment: {trouble}") from trouble
        finally:
            ask.exchanges += golden.exchanges
        found = continuation(theirs, mine, dtype=pair.dtype)
        return ProbeResult(
            ok=found.ok, value=found.value, cell=residues(len(prompt)), details=found.details
        )

    return _probe(text, script, "lost" if altered else "continued", requests=2)


def repeated(text: Text, pair: Pair) -> Probe:
    """Return a probe that scores one text twice by each deployment, interleaved: the null arms."""

    async def script(ask: Ask) -> ProbeResult:
        given = await _text(ask, text)
        arms: dict[str, list[list[GivenToken]]] = {"measured": [], "golden": []}
        for _ in range(2):
            arms["measured"].append(await score(ask, given.ids, tops=TOPS, label="measured"))
            arms["golden"].append(await _by_golden(ask, pair, given))
        details: dict[str, Any] = {}
        for name, (first, second) in arms.items():
            scored = [[token.scored() for token in arm] for arm in (first, second)]
            found = agreement(*scored, dtype=pair.dtype, answer_at=given.answer_at - 1)
            details[name] = found.details
        return ProbeResult(
            ok=all(found["repeats"] for found in details.values()),
            value=max(found["mean_abs_uncertain"] or 0.0 for found in details.values()),
            cell=residues(len(given.ids)),
            details=details,
        )

    return _probe(text, script, "repeated", requests=4)


class _GoldenTrouble(Exception):
    """Infrastructure trouble of the golden: the measured deployment's breaker must not count it."""


def _probe(text: Text, script: Script, builder: str, *, requests: int) -> Probe:
    async def guarded(ask: Ask) -> ProbeResult:
        try:
            return await script(ask)
        except _GoldenTrouble as trouble:
            return ProbeResult(ok=None, error=str(trouble))

    return Probe(
        family="golden text",
        key=f"{builder}/{text.row_tokens}/{text.tokens}/{text.depth_frac}/{text.seed}",
        script=guarded,
        cell=text.cell,
        recipe={
            "builder": f"golden {builder}",
            "seed": text.seed,
            "row_tokens": text.row_tokens,
            "tokens": text.tokens,
            "depth_frac": text.depth_frac,
        },
        cost_tokens=text.tokens * requests // 2,
        cost_requests=requests,
    )


async def _text(ask: Ask, text: Text, *, with_answer: bool = True) -> GivenText:
    """Return the text in the measured deployment's tokens.

    Exactly as long as the sweep says with its answer, or (for what continues it) without.
    """
    draw = random.Random(f"needle {text.seed}")  # noqa: S311 - prompts, not secrets
    needle = draw_needle(draw, NeedleKind.SINGLE)
    told = (await ask.client.tokenize(prompt=needle.code)).count if with_answer else 0
    fitted = await fit_needle(
        ask, needle, seed=text.seed, target=text.tokens - told, depth_frac=text.depth_frac
    )
    return await rendered(ask.client, fitted.messages, needle.code)


async def _by_golden(ask: Ask, pair: Pair, given: GivenText) -> list[GivenToken]:
    """Score by the golden; its trouble is told as its own."""
    golden = Ask(pair.golden.client)
    try:
        return await score(golden, given.ids, tops=TOPS, label="golden")
    except EndpointError as trouble:
        raise _GoldenTrouble(f"the golden deployment: {trouble}") from trouble
    finally:
        ask.exchanges += golden.exchanges


async def _continue(ask: Ask, prompt: Sequence[int], label: str) -> list[ScoredToken]:
    """Return the tokens that a deployment makes, by their texts: not all servers tell ids."""
    reply = await ask.complete(
        prompt,
        label=label,
        max_tokens=CONTINUED_TOKENS,
        temperature=0.0,
        stream=False,
        top_logprobs=TOPS,
    )
    if not reply.logprobs:
        raise EndpointError("logprobs of a completion were asked for, and the answer has none")
    return [generated(token) for token in reply.logprobs]


def _without_middle(prompt: Sequence[int]) -> list[int]:
    """Return a prompt of which only the last tokens are left: the question, without the facts."""
    return [*prompt[:1], *prompt[-_QUESTION_TOKENS:]]


def _common_words(
    mine: Sequence[GivenToken], theirs: Sequence[GivenToken], *, skip: int | None
) -> bool:
    """Return whether to compare by text; ids mean the same tokens, or the comparison is refused.

    Raises:
        CapabilityMissing: one id is two texts: the deployments have two vocabularies.
    """
    told = [
        (a, b)
        for place, (a, b) in enumerate(zip(mine, theirs, strict=True))
        if place != skip and _bare(a.text) and _bare(b.text)
    ]
    other = [(a, b) for a, b in told if _bare(a.text) != _bare(b.text)]
    if len(other) > _SPELLED_OTHERWISE * len(told):
        a, b = other[0]
        raise CapabilityMissing(
            f"{len(other)} of {len(told)} tokens are other texts to the golden, the first is"
            f" {a.token_id}: {a.text!r} to the measured deployment and {b.text!r} to the golden:"
            " two vocabularies cannot be compared token by token"
        )
    return not all(token.tells_ids for token in (*mine, *theirs))


def _bare(text: str) -> str:
    """Return a token's ASCII letters and digits: servers spell blanks and other bytes their way."""
    return "".join(character for character in text if character.isascii() and character.isalnum())


def _another(ids: Sequence[int]) -> int:
    """Return a token of the text's end that differs from the one at the altered place."""
    return next(i for i in reversed(ids) if i != ids[_ALTERED_AT])


def _seen_at(arms: Sequence[Sequence[ScoredToken]], place: int) -> bool:
    """True when the logprobs alone show the alteration: the largest difference so far is here."""
    sizes: list[float] = [abs(a.logprob - b.logprob) for a, b in zip(*arms, strict=True)]
    return max(sizes[: place + 1]) == sizes[place] and sizes[place] > 0.0
