"""One script as a probe: played, then each of its answers asked again alone and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.fuzz.comparing import Compared, compare
from fidelity.fuzz.isolation import Alone, Way, alone, other_code, way_of
from fidelity.fuzz.playing import Can, Played, Player, flush
from fidelity.probes.probe import Ask, Probe, ProbeResult
from fidelity.words import Ladder, Score, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.fuzz.script import Script
    from fidelity.records import Trial

AGREES = "agrees"
DIFFERS = "differs"
NULL = "null"
"""Axis of a trial: whether one isolated request, asked twice, agreed with itself."""
RUNG = "rung"
_ORDER = tuple(Ladder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    played: Played
    compared: Compared
    beside: Alone | None


def script_probe(
    script: Script,
    can: Can,
    *,
    key: str,
    recipe: Mapping[str, Any],
    altered: bool = False,
) -> Probe:
    """Return the probe of a script; ok means that every answer is what it is alone.

    `value` is the greatest difference of logprobs; the cell says how bad, and whether the last
    isolated request agreed with itself (the null control of this very script).

    Args:
        script: to play.
        can: what the server is able and allowed to do.
        key: of the trial.
        recipe: of the trial.
        altered: the damage of the positive control: the facts of the isolated arm are altered.
    """

    async def run(ask: Ask) -> ProbeResult:
        if can.flush:
            await flush(ask)
        played = await Player(ask, can).play(script)
        judged = [
            await _judge(ask, one, can, script, seed=f"{key} {number}", altered=altered)
            for number, one in enumerate(played)
        ]
        shown = min(judged, key=_badness, default=None)
        if shown is None:
            return ProbeResult(ok=True, cell=_cell(script, way_of(can), AGREES, None))
        null = await _null(ask, shown, can, seed=key, altered=altered)
        way = way_of(can)
        if shown.beside is not None and not shown.beside.same_tokens:
            way = Way.OTHER_LINE
        return _result(judged, shown, null, _cell(script, way, null, shown.compared.rung))

    return Probe(
        family="script",
        key=key,
        script=run,
        cell={"steps": len(script.steps), "requests": script.requests},
        recipe=dict(recipe),
        expected="each answer as it is alone",
        cost_tokens=3 * _tokens(script),
        cost_requests=2 * script.requests + 1,
        traffic=max((script.traffic, _traffic(can)), key=list(Traffic).index),
    )


def null_of(trials: Sequence[Trial]) -> list[Trial]:
    """Return the same trials judged by whether isolated requests agreed with themselves."""
    return [
        msgspec.structs.replace(trial, ok=trial.cell[NULL] == AGREES, error="")
        for trial in trials
        if NULL in trial.cell
    ]


async def _judge(
    ask: Ask, played: Played, can: Can, script: Script, *, seed: str, altered: bool
) -> _Judged:
    if played.chat.temperature > 0:  # only searched for foreign facts: needs no second request
        nobody = Alone(reply=played.reply, same_tokens=False)
        return _Judged(
            played=played,
            compared=compare(played, nobody, facts=script.facts, dtype=can.dtype),
            beside=None,
        )
    beside = await alone(ask, played, can, seed=seed, altered=altered)
    if altered:  # the isolated arm was told another fact: there that one is right
        chat = msgspec.structs.replace(played.chat, expect=other_code(played.chat.expect))
        compared = compare(replace(played, chat=chat), beside, facts={}, dtype=can.dtype)
    else:
        compared = compare(played, beside, facts=script.facts, dtype=can.dtype)
    return _Judged(played=played, compared=compared, beside=beside)


async def _null(ask: Ask, shown: _Judged, can: Can, *, seed: str, altered: bool) -> str:
    """Ask the isolated request of the worst answer once more: it must agree with itself."""
    if shown.beside is None:
        return AGREES
    again = await alone(
        ask, shown.played, can, seed=f"{seed} again", altered=altered, label="alone, again"
    )
    first = Played(
        label=f"{shown.played.label}: alone",
        chat=shown.played.chat,
        messages=shown.played.messages,
        reply=shown.beside.reply,
    )
    return DIFFERS if compare(first, again, facts={}, dtype=can.dtype).ok is False else AGREES


def _badness(judged: _Judged) -> tuple[int, int]:
    found = judged.compared
    order = {False: 0, None: 1, True: 2}[found.ok]
    return order, -(_ORDER.index(found.rung) if found.rung is not None else -1)


def _result(
    judged: Sequence[_Judged], shown: _Judged, null: str, cell: dict[str, str | int | float]
) -> ProbeResult:
    found = shown.compared
    ok, error = found.ok, "" if found.ok else found.sentence
    if ok is False and null == DIFFERS:
        ok = None
        error = f"the same request alone differs from itself, so nothing is known: {error}"
    sizes = [each.compared.size for each in judged if each.compared.size is not None]
    return ProbeResult(
        ok=ok,
        score=found.score if found.score is not None else None if ok else Score.WRONG,
        value=max(sizes, default=None),
        error=error,
        cell=cell,
        paths=_paths(judged),
    )


def _cell(script: Script, way: Way, null: str, rung: Ladder | None) -> dict[str, str | int | float]:
    return {
        "steps": len(script.steps),
        "requests": script.requests,
        "isolation": str(way),
        NULL: null,
        **({RUNG: str(rung)} if rung is not None else {}),
    }


def _paths(judged: Sequence[_Judged]) -> tuple[str, ...]:
    paths = {"cached" for each in judged if each.played.reply.cached_tokens}
    paths |= {"cold" for each in judged if each.beside and each.beside.reply.cached_tokens == 0}
    return tuple(sorted(paths))


def _traffic(can: Can) -> Traffic:
    return Traffic.DISRUPTIVE if can.flush else Traffic.PASSIVE


def _tokens(script: Script) -> int:
    """Return about how many prompt tokens the steps say, histories not counted twice."""
    return sum(len(text) for text in _texts(script)) // 4


def _texts(script: Script) -> list[str]:
    texts = []
    for step in script.steps:
        for each in getattr(step, "steps", (step,)):
            texts.append(getattr(each, "say", ""))
            texts += [str(message.get("content", "")) for message in getattr(each, "given", ())]
    return texts
