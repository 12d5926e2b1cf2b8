"""A conformance check: what to send, and a judge that names each breach. One check is one claim.

The same judge is shown damaged copies of the same exchange, as its positive control: a judge that
finds nothing wrong with them cannot pass the claim.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from fidelity.checks.conformance_failures import is_to_blame, words_of
from fidelity.checks.conformance_wire import Failed, Line, Refused, Undecided, Unsupported, Wire
from fidelity.endpoint import json_shape as shape
from fidelity.probes.probe import Ask, Probe, ProbeResult, excerpt
from fidelity.words import Concern, Outcome, Traffic

if TYPE_CHECKING:
    from fidelity.measure import Measure
    from fidelity.records import Finding, Trial

Wires = Sequence[Wire]
Collect = Callable[[Line], Awaitable[Wires]]
Judge = Callable[[Wires], list[str]]
_UNDECIDED, _UNSUPPORTED, _REFUSED = "undecided", "unsupported", "refused"
_MOST_PROBLEMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damage that we do to an exchange ourselves; the check must find it."""

    what: str
    apply: Callable[[Wires], Wires]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One conformance claim.

    Attributes:
        name: parameter of the claim's id.
        title: the claim as a sentence.
        collect: sends the requests.
        judge: returns the breaches, none when the claim holds; raises Undecided or Unsupported.
        damages: positive controls.
        needs: capabilities without which there is nothing to send.
        feature: capability that a refusal in words makes not applicable; "" where none may.
        optional: a refusal in words is not applicable, though no capability stands for it.
        refusable: a refusal in words keeps the promise: the claim is "obeyed, or refused".
        cost_tokens: of all requests.
        cost_requests: of all.
        traffic: class of the requests.
        kept: the exchanges of the last measurement, for the controls.
    """

    name: str
    title: str
    collect: Collect
    judge: Judge
    damages: tuple[Damage, ...] = ()
    needs: tuple[str, ...] = ()
    feature: str = ""
    optional: bool = False
    refusable: bool = False
    cost_tokens: int = 60
    cost_requests: int = 1
    traffic: Traffic = Traffic.PASSIVE
    kept: list[Wires] = field(default_factory=list, compare=False, repr=False)


READING = (
    "prompt_is_the_reference_encoding*",
    "*_text_is_rendered",
    "earlier_turns_are_rendered",
    "text_parts_count_like_a_text",
    "arguments_of_the_history_are_rendered_once",
    "chat_equals_the_completion_of_its_ids",
    "tools_are_rendered_or_refused",
    "images_are_read_or_refused",
    "result_is_read",
    "no_hidden_limit",
    "answers_are_whole_or_refused",
    "parameters_stay_with_their_request",
    "several_prompts_are_answered_each",
    "prompt_at_the_limit",
    "max_tokens_beyond_the_limit",
)
"""Checks in which a breach means that the model read something else than was sent."""


def concern_of(check: Check) -> Concern:
    """Return what a breach of this check says: of the reading, or of the API alone."""
    reads = any(fnmatch.fnmatchcase(check.name, pattern) for pattern in READING)
    return Concern.READING if reads else Concern.CONFORMANCE


def name_of(check: Check) -> str:
    """Return the name under which a check stands in a claim's id."""
    return check.name


def hold(measure: Measure, check: Check) -> None:
    """Ask, judge, show the judge the damaged exchanges, and decide.

    Raises:
        Violation, Inconclusive, NotApplicable, EndpointError, CapabilityMissing: the outcome.
    """
    measure.needs(*check.needs)
    measure.allow(check.traffic)
    check.kept.clear()
    trials = measure.ask([_probe(check)])
    finding = measure.all_true_finding(trials, title=check.title)
    finding = _worded(finding, trials[0], check, measure.deployment.expects)
    finding = msgspec.structs.replace(finding, concern=concern_of(check))
    refused = trials[0].cell.get("result") == _REFUSED
    damages = (_WORDLESS,) if refused else check.damages
    for damage in damages if trials[0].ok else ():
        if check.kept and not _applies(damage, check.kept[0]):
            # the judge is not blind: it was given nothing that this damage could show in
            reason = f"the exchange holds nothing that could be damaged ({damage.what})"
            finding = msgspec.structs.replace(finding, outcome=Outcome.INCONCLUSIVE, reason=reason)
            continue
        measure.control("positive", damage.what, [_probe(check, damage)])
    measure.decide(finding)


def _content(wire: Wire) -> tuple[object, ...]:
    """Return what a judge sees of an exchange, however its bytes are laid out."""
    body: object = wire.body
    if wire.streamed:
        body = (wire.events(), wire.stream.done, wire.stream.after_done, wire.stream.breach)
    elif wire.body.startswith(b"{"):
        body = wire.json()
    return wire.status, wire.facts, body


def _without_words(wires: Wires) -> Wires:
    return [wire if wire.status == HTTPStatus.OK else replace(wire, body=b"") for wire in wires]


_WORDLESS = Damage(what="the refusal is left without a word", apply=_without_words)


def _applies(damage: Damage, wires: Wires) -> bool:
    try:
        return [_content(wire) for wire in damage.apply(wires)] != list(map(_content, wires))
    except (Undecided, Unsupported, shape.Malformed, LookupError, StopIteration):
        return False


def _probe(check: Check, damage: Damage | None = None) -> Probe:
    async def script(ask: Ask) -> ProbeResult:
        line = Line(ask, traffic=check.traffic)
        result = await measured(check, line, damage)
        if damage is None and not result.ok:
            line.show_shared()
        redactor = ask.client.transport.redactor
        return replace(result, cell={k: redactor.text(str(v)) for k, v in result.cell.items()})

    return Probe(
        family="conformance",
        key=check.name if damage is None else f"{check.name}/{damage.what}",
        script=script,
        recipe={"builder": "conformance", "check": check.name, "damage": damage and damage.what},
        expected=check.title,
        cost_tokens=0 if damage else check.cost_tokens,
        cost_requests=0 if damage else check.cost_requests,
        traffic=check.traffic,
    )


async def measured(check: Check, line: Line, damage: Damage | None = None) -> ProbeResult:
    """Send what a check asks for, or take what it was answered, damage it, and judge it.

    Raises:
        EndpointError: the server did not answer.
    """
    try:
        if damage is None or not check.kept:
            check.kept[:] = [await check.collect(line)]
        wires = check.kept[0]
        problems = check.judge(wires if damage is None else damage.apply(wires))
    except shape.Malformed as error:
        problems = [f"a body of another shape: {error}"]
    except Failed as failed:
        if not await is_to_blame(line, failed):
            raise
        problems = [words_of(failed)]
    except Undecided as why:
        return _no_result(_UNDECIDED, why)
    except Refused as why:
        if not check.refusable:
            return _of_unsupported(check, why)
        if why.wire.said:
            return ProbeResult(ok=True, cell={"result": _REFUSED, "reason": excerpt(str(why), 500)})
        problems = [f"{why.wire.label}: refused with {why.wire.status} and no word"]
    except Unsupported as why:
        return _of_unsupported(check, why)
    return _of_problems(problems)


def _of_unsupported(check: Check, why: Unsupported) -> ProbeResult:
    if check.feature or check.optional:
        return _no_result(_UNSUPPORTED, why)
    return _of_problems([str(why)])


def _of_problems(problems: list[str]) -> ProbeResult:
    if not problems:
        return ProbeResult(ok=True)
    shown = "; ".join(excerpt(problem, 300) for problem in problems[:_MOST_PROBLEMS])
    more = len(problems) - _MOST_PROBLEMS
    return ProbeResult(ok=False, cell={"breach": shown + (f"; {more} more" if more > 0 else "")})


def _no_result(kind: str, why: Exception) -> ProbeResult:
    reason = excerpt(str(why), 500)
    return ProbeResult(ok=None, error=reason, cell={"result": kind, "reason": reason})


def _worded(finding: Finding, trial: Trial, check: Check, expects: Sequence[str]) -> Finding:
    """Return the finding in the judge's own words."""
    result, why = trial.cell.get("result"), str(trial.cell.get("reason", ""))
    if trial.ok is False:
        reason = f"{trial.cell.get('breach')}; the request is in trial {trial.id}"
        return msgspec.structs.replace(finding, reason=reason)
    if trial.ok is None and result == _UNDECIDED:
        return msgspec.structs.replace(finding, outcome=Outcome.INCONCLUSIVE, reason=why)
    if trial.ok is None and result == _UNSUPPORTED:
        promised = check.feature in expects
        return msgspec.structs.replace(
            finding,
            outcome=Outcome.ERROR if promised else Outcome.NOT_APPLICABLE,
            reason=why + f"; the deployment promises {check.feature}" * promised,
        )
    return finding
