"""Recall of one fact from a context of an exact number of tokens."""

from __future__ import annotations

import random

from fidelity.checks.answering import Judged, answer
from fidelity.probes.calibration import counter_of
from fidelity.probes.filler import REPEATED
from fidelity.probes.haystack import INTRODUCTION, Fitted, Messages, Placed, Size, fit, haystack
from fidelity.probes.needles import Needle, NeedleKind, draw_needle
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.probes.scoring import Expected

MODULI = (4, 16, 64, 128)
"""Of the lengths: windows of compression, pages and chunks of engines in use divide by these."""
DEPTHS_FRAC = (0.0, 0.25, 0.5, 0.75, 1.0)
SHORTEST_TOKENS = {
    NeedleKind.SINGLE: 100,
    NeedleKind.NEAR_DUPLICATE: 256,
    NeedleKind.KEY_VALUE: 256,
    NeedleKind.SECTION: 256,
}
"""Below this the question itself does not fit, in the smallest vocabularies."""
BODY_FRAC = (0.5, 0.95)
"""Where a section's fact may stand in it: far from its own heading, before the next one."""


def needle_probe(
    *,
    seed: str,
    row_tokens: int,
    prompt_tokens: int,
    depth_frac: float,
    kind: NeedleKind = NeedleKind.SINGLE,
    repeated: bool = False,
    without_fact: bool = False,
    boundary: str = "",
) -> Probe:
    """Return a probe that asks for one fact.

    Args:
        seed: of needle and filler.
        row_tokens: the length that the sweep calls this, e.g. 4096.
        prompt_tokens: the exact length, generation prompt included.
        depth_frac: share of the filler before the fact; among sections, of the others that stand
            before the one that is asked for.
        kind: what stands beside the fact.
        repeated: one line over and over instead of distinct filler.
        without_fact: the damage of the positive control: the fact is cut out of the context.
        boundary: name of the boundary that the length lies at, e.g. "512+1".
    """
    recipe = {
        "builder": "needle_probe",
        "seed": seed,
        "row_tokens": row_tokens,
        "prompt_tokens": prompt_tokens,
        "depth_frac": depth_frac,
        "kind": str(kind),
        "repeated": repeated,
        "without_fact": without_fact,
        "boundary": boundary,
    }
    needle = _needle_of(seed, kind, row_tokens)

    async def script(ask: Ask) -> ProbeResult:
        fitted = await fit_needle(
            ask,
            needle,
            seed=seed,
            target=prompt_tokens,
            depth_frac=depth_frac,
            repeated=repeated,
            without_fact=without_fact,
        )
        expected = Expected(right=needle.code, distractors=needle.rival_codes)
        judged = await answer(ask, fitted.messages, expected)
        return judge_length(judged, fitted, target=prompt_tokens, boundary=boundary)

    cell: dict[str, str | int | float] = {
        "length_tokens": row_tokens,
        "depth_frac": depth_frac,
        "needle_kind": str(kind),
    }
    if boundary:
        cell["boundary"] = boundary
    return Probe(
        family="needle",
        key=f"{row_tokens}/{prompt_tokens}/{depth_frac}/{kind}/{seed}",
        script=script,
        cell=cell | residues(prompt_tokens),
        recipe=recipe,
        expected=needle.code,
        cost_tokens=prompt_tokens,
    )


async def fit_needle(
    ask: Ask,
    needle: Needle,
    *,
    seed: str,
    target: int,
    depth_frac: float,
    repeated: bool = False,
    without_fact: bool = False,
) -> Fitted:
    """Return the fitted prompt of a needle."""
    draw = random.Random(f"rivals {seed}")  # noqa: S311 - prompts, not secrets
    placed = _in_sections(needle, depth_frac, draw) if needle.heading else []
    if not needle.heading:
        placed = [Placed(sentence=rival, depth_frac=draw.random()) for rival in needle.rivals]
        placed.append(Placed(sentence=needle.statement, depth_frac=depth_frac))
    if without_fact:
        placed = [item for item in placed if item.sentence != needle.statement]

    def render(size: Size) -> Messages:
        text = haystack(seed, size, placed, repeated=REPEATED if repeated else "")
        return [{"role": "user", "content": f"{INTRODUCTION}{text}{needle.question}"}]

    return await fit(counter_of(ask.client).count, render, target)


def _in_sections(needle: Needle, depth_frac: float, draw: random.Random) -> list[Placed]:
    """Return headings at equal distances, and in each section's body its line."""
    told = list(zip(needle.rival_headings, needle.rivals, strict=True))
    told.insert(round(depth_frac * len(told)), (needle.heading, needle.statement))
    placed = []
    for place, (heading, statement) in enumerate(told):
        body = place + draw.uniform(*BODY_FRAC)
        placed += [
            Placed(sentence=heading, depth_frac=place / len(told), heading=True),
            Placed(sentence=statement, depth_frac=body / len(told)),
        ]
    return placed


def judge_length(judged: Judged, fitted: Fitted, *, target: int, boundary: str = "") -> ProbeResult:
    """Return the result of an answer whose prompt has a known length.

    The tokenizer's count and usage must agree. A right answer to a prompt of another length than
    was asked for cannot be placed in the sweep; a wrong one is wrong all the same.
    """
    seen = judged.reply.prompt_tokens
    tokens = fitted.tokens if seen is None else seen
    cell = residues(tokens)
    if boundary and tokens != target:
        cell["boundary"] = f"{boundary} not met"
    ok, error, lost = judged.ok, judged.error, ""
    if ok and fitted.counted and tokens != fitted.tokens:
        ok, error = None, _contradiction(fitted.tokens, tokens)
    elif ok is False and fitted.counted and seen is not None:
        lost = "rendering" if seen < fitted.tokens else "attention"
    return ProbeResult(ok=ok, score=judged.score, error=error, lost=lost, cell=cell)


def _contradiction(counted: int, seen: int) -> str:
    return (
        f"the tokenizer endpoint counted {counted} tokens for a prompt of which usage says {seen}:"
        " one of them is not telling the truth"
    )


def residues(prompt_tokens: int) -> dict[str, str | int | float]:
    """Return the residue axes of a length, and the length itself."""
    axes: dict[str, str | int | float] = {"prompt_tokens": prompt_tokens}
    return axes | {f"residue_{modulus}": prompt_tokens % modulus for modulus in MODULI}


def _needle_of(seed: str, kind: NeedleKind, tokens: int) -> Needle:
    draw = random.Random(f"needle {seed}")  # noqa: S311 - prompts, not secrets
    return draw_needle(draw, kind, tokens=tokens)
