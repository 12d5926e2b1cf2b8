"""Context gain of one fact: what the right answer gains by it, in nats.

gain = log p(answer | context) - log p(answer | the same context with the fact altered). Both
contexts have the same tokens but for the fact, so that neither length nor habit of the model is
left in the difference; with the altered fact's own answer it is measured the other way round too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fidelity.checks.dealing import dealt
from fidelity.checks.recall import DEPTHS_FRAC, MODULI, SHORTEST_TOKENS, residues
from fidelity.errors import CapabilityMissing, ConfigError
from fidelity.probes.calibration import counter_of
from fidelity.probes.given_text import score
from fidelity.probes.haystack import INTRODUCTION, Messages, Placed, Size, fit, haystack
from fidelity.probes.needles import Needle, NeedleKind, draw_code, draw_needle
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.statistics.divergence import rounding_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fidelity.records import Trial

_STRIDE = 9
_DRAWS = 40
"""Tries at an altered code of as many tokens as the true one."""
UNTOUCHED_NATS = rounding_bound("float32")
"""A fact that moves its answer's logprob by less was not read at all, by a weak model either."""

Altered = str
FACT: Altered = "fact"
NOTHING: Altered = "nothing"
"""The damage of the positive control: the fact is altered in both arms, which are then equal."""
RIVAL: Altered = "rival"
"""Another fact is altered instead: what a distractor is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One fact to be read: where it lies, and how it is measured.

    Attributes:
        seed: of needle and filler.
        row_tokens: the length that the sweep calls this.
        tokens: exact length of prompt and answer together.
        depth_frac: share of the filler before the fact.
        kind: what stands beside the fact.
        both_ways: measured with the altered fact's answer too.
        bound_nats: a gain counts when it is larger than this, what rounding can move.
    """

    seed: str
    row_tokens: int
    tokens: int
    depth_frac: float
    kind: NeedleKind = NeedleKind.SINGLE
    both_ways: bool = False
    bound_nats: float = 0.0

    @property
    def cell(self) -> dict[str, str | int | float]:
        """Axes of the sweep."""
        axes: dict[str, str | int | float] = {
            "length_tokens": self.row_tokens,
            "depth_frac": self.depth_frac,
            "needle_kind": str(self.kind),
        }
        return axes | residues(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arms:
    """Two contexts of the same tokens but for one fact, and the answers that each makes right."""

    true: tuple[int, ...]
    altered: tuple[int, ...]
    answer: tuple[int, ...]
    other: tuple[int, ...]


def sweep(
    *, seed: str, rows: dict[int, int], both_ways_tokens: int, bound_nats: float
) -> list[Reading]:
    """Return facts to be read: `rows` maps a length to how many; depths and kinds are dealt out."""
    found: list[Reading] = []
    for row, count in rows.items():
        draw = random.Random(f"gain {seed} {row}")  # noqa: S311 - prompts, not secrets
        depths = dealt(DEPTHS_FRAC, count, draw)
        kinds = [NeedleKind.SINGLE, NeedleKind.NEAR_DUPLICATE]
        if row - 64 < SHORTEST_TOKENS[NeedleKind.NEAR_DUPLICATE]:
            kinds = [NeedleKind.SINGLE]
        dealt_kinds = dealt(kinds, count, draw)
        start = draw.randrange(64)
        found += [
            Reading(
                seed=f"{seed}-gain-{row}-{index}",
                row_tokens=row,
                tokens=row - (start + _STRIDE * index) % 64,
                depth_frac=depths[index],
                kind=dealt_kinds[index],
                both_ways=row <= both_ways_tokens,
                bound_nats=bound_nats,
            )
            for index in range(count)
        ]
    return found


def classes_of(trial: Trial) -> list[str]:
    """Return the classes of a trial, as "axis=value"."""
    axes = ["length_tokens", "depth_frac", *(f"residue_{modulus}" for modulus in MODULI)]
    return [f"{axis}={trial.cell[axis]}" for axis in axes if axis in trial.cell]


def fresh_of_class(
    name: str, count: int, *, seed: int, rows: Sequence[int], bound_nats: float
) -> list[Reading]:
    """Return new facts of exactly one class; other axes vary as in the sweep, at short lengths.

    Raises:
        ConfigError: no class of that name.
    """
    axis, _, value = name.partition("=")
    short = sorted(rows)[:2]
    counts = (
        {int(value): count}
        if axis == "length_tokens"
        else {row: -(-count // len(short)) for row in short}
    )
    found = sweep(
        seed=f"{seed}-class-{name}", rows=counts, both_ways_tokens=0, bound_nats=bound_nats
    )[:count]
    if axis == "length_tokens":
        return found
    if axis == "depth_frac":
        return [replace(item, depth_frac=float(value)) for item in found]
    if axis.startswith("residue_"):
        modulus = int(axis.removeprefix("residue_"))
        return [replace(r, tokens=r.tokens - (r.tokens - int(value)) % modulus) for r in found]
    raise ConfigError(f"there is no class {name!r} of gain trials")


def gain_probe(reading: Reading, *, altered: Altered = FACT) -> Probe:
    """Return a probe that measures one gain; it is ok when the gain exceeds the rounding bound."""

    async def script(ask: Ask) -> ProbeResult:
        arms = await _arms(ask, reading, altered)
        label = "context"
        here = await _worth(ask, arms.true, arms.answer, label)
        there = await _worth(ask, arms.altered, arms.answer, f"{altered} altered")
        ways = [(here, there)]
        if reading.both_ways and altered == FACT:
            ways.append(
                (
                    await _worth(ask, arms.altered, arms.other, "other answer, fact altered"),
                    await _worth(ask, arms.true, arms.other, "other answer"),
                )
            )
        gain = sum(with_fact - without for with_fact, without in ways) / len(ways)
        return ProbeResult(
            ok=gain > reading.bound_nats,
            value=gain,
            cell=residues(len(arms.true) + len(arms.answer)),
            details={
                "ways": [[round(a, 6), round(b, 6)] for a, b in ways],
                "answer_nats": here,
                "untouched": all(abs(a - b) <= UNTOUCHED_NATS for a, b in ways),
                "parts": f"gain {gain:+.2f} nats",
                "bound_nats": reading.bound_nats,
            },
        )

    requests = 4 if reading.both_ways and altered == FACT else 2
    return Probe(
        family="context gain",
        key=f"{altered}/{reading.row_tokens}/{reading.tokens}/{reading.depth_frac}/{reading.seed}",
        script=script,
        cell=reading.cell,
        recipe={
            "builder": "gain_probe",
            "seed": reading.seed,
            "row_tokens": reading.row_tokens,
            "tokens": reading.tokens,
            "depth_frac": reading.depth_frac,
            "kind": str(reading.kind),
            "both_ways": reading.both_ways,
            "bound_nats": reading.bound_nats,
            "altered": altered,
        },
        cost_tokens=reading.tokens * requests,
        cost_requests=requests,
    )


async def _worth(ask: Ask, context: Sequence[int], answer: Sequence[int], label: str) -> float:
    """Return the logprob of an answer after a context, in nats; only the answer is scored."""
    tokens = await score(ask, [*context, *answer], start=len(context), label=label)
    return sum(token.logprob for token in tokens)


async def _arms(ask: Ask, reading: Reading, altered: Altered) -> _Arms:
    """Return the two contexts in the deployment's own tokens.

    Raises:
        CapabilityMissing: no token ids, or no altered fact of as many tokens was found.
    """
    draw = random.Random(f"needle {reading.seed}")  # noqa: S311 - prompts, not secrets
    needle = draw_needle(draw, NeedleKind.NEAR_DUPLICATE if altered == RIVAL else reading.kind)
    answer = await _ids(ask, prompt=needle.code)
    render = _renderer(needle, reading)
    fitted = await fit(
        counter_of(ask.client).count,
        lambda size: render(needle.code, "", size),
        reading.tokens - len(answer),
    )
    true = await _ids(ask, messages=fitted.messages)
    for _ in range(_DRAWS):
        other = draw_code(draw, len(needle.code))
        if other in {needle.code, *needle.rival_codes}:
            continue
        told = (needle.code, other) if altered == RIVAL else (other, "")
        told = (needle.code, "") if altered == NOTHING else told
        changed = await _ids(ask, messages=render(*told, fitted.size))
        other_ids = await _ids(ask, prompt=other)
        if len(changed) == len(true) and len(other_ids) == len(answer):
            return _Arms(true=true, altered=changed, answer=answer, other=other_ids)
    raise CapabilityMissing(
        f"no other code of {len(answer)} tokens was found in {_DRAWS} draws: contexts of one length"
        " cannot be built in this vocabulary"
    )


def _renderer(needle: Needle, reading: Reading) -> Callable[[str, str, Size], Messages]:
    """Return what renders the context with a code in the fact's place, and in its first rival's."""
    draw = random.Random(f"rivals {reading.seed}")  # noqa: S311 - prompts, not secrets
    depths = [draw.random() for _ in needle.rivals]

    def render(code: str, rival_code: str, size: Size) -> Messages:
        rivals = list(needle.rivals)
        if rival_code:
            rivals[0] = rivals[0].replace(needle.rival_codes[0], rival_code)
        placed = [
            Placed(sentence=rival, depth_frac=depth)
            for rival, depth in zip(rivals, depths, strict=True)
        ]
        statement = needle.statement.replace(needle.code, code)
        placed.append(Placed(sentence=statement, depth_frac=reading.depth_frac))
        text = haystack(reading.seed, size, placed)
        return [{"role": "user", "content": f"{INTRODUCTION}{text}{needle.question}"}]

    return render


async def _ids(
    ask: Ask, *, prompt: str | None = None, messages: Messages | None = None
) -> tuple[int, ...]:
    tokens = (await ask.client.tokenize(messages, prompt=prompt)).tokens
    if not tokens:
        raise CapabilityMissing("the tokenizer endpoint counts, and tells no token ids")
    return tokens
