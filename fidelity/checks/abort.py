"""Requests that are aborted, and what the next request on the same prefix makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from fidelity.checks.abort_plans import BY_NAME, After, How, Pace, Plan, Point
from fidelity.checks.answering import Judged, answer
from fidelity.checks.conversation import as_turn, measured
from fidelity.checks.register import Register, register
from fidelity.checks.slips import expected_of, without_slips
from fidelity.checks.together import together
from fidelity.endpoint.request_body import new_request_id
from fidelity.errors import TrafficRefused
from fidelity.probes.accounting import lost_by_length
from fidelity.probes.dialogue import user
from fidelity.probes.probe import Ask, Probe, ProbeResult, Script, aborted_exchange
from fidelity.words import Score, Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.endpoint.replies import Reply

LONG_TASK = "Count from 1 to 90."
"""Long enough that there is something left to abort, in any vocabulary."""
LONG_TOKENS = 400
CALL_RETRY_S = 0.02
CALL_TRIES = 100


def aborted_probe(plan: Plan, pace: Pace) -> Probe:
    """Return a probe: a request is aborted, then every fact of its context is asked for.

    A page that was published half-written shows in the facts that it holds, wherever it lies:
    hence each of them is asked for. `value` is the share of right answers; ok means all.
    """
    told, undisturbed = _registers(plan)

    async def script(ask: Ask) -> ProbeResult:
        point = BY_NAME[plan.point]
        task = told.questions[0] if _stays_in_prefill(point) else LONG_TASK
        messages = [*told.messages, user(task)]
        partial = await abort_request(
            ask, messages, point, plan.how, wait_s=pace.first_token_s(plan.tokens)
        )
        if partial is not None:
            pace.learn(partial)
        base: list[dict[str, Any]] = list(told.messages)
        if plan.after is After.SAME:
            await ask.chat(messages, label="same prompt again", max_tokens=LONG_TOKENS)
        elif plan.after is After.WITH_PARTIAL and partial is not None and partial.text:
            base = [*messages, as_turn(partial)]
        judged = await without_slips(ask, await _ask_all(ask, base, told), undisturbed)
        result = _result(judged, told.messages)
        was_aborted = partial is None or partial.aborted
        return ProbeResult(
            ok=result.ok,
            score=result.score,
            value=result.value,
            error=result.error,
            lost=result.lost,
            cell=dict(result.cell) if was_aborted else {**result.cell, "point": "too late"},
            paths=("aborted",) if was_aborted else (),
        )

    recipe = {"builder": "aborted_probe", **plan.recipe}
    return _probe(plan, told, script, recipe, requests=plan.facts + 2)


def undisturbed_probe(plan: Plan, pace: Pace, *, without_facts: bool = False) -> Probe:
    """Return the other arm: the same facts and questions with no abort before.

    One line at the top differs, so that nothing is shared with the aborted request.

    Args:
        plan: of the aborted arm.
        pace: learns how long the cold prompt took.
        without_facts: the damage of the positive control: the message with the facts is dropped.
    """
    _, told = _registers(plan)

    async def script(ask: Ask) -> ProbeResult:
        base = [] if without_facts else list(told.messages)
        judged = list((await _ask_all(ask, base, told, every=3)).values())
        pace.learn(judged[0].reply)
        return _result(judged, base)

    recipe = {"builder": "undisturbed_probe", **plan.recipe, "without_facts": without_facts}
    return _probe(plan, told, script, recipe, requests=plan.facts // 3 + 1)


async def abort_request(
    ask: Ask,
    messages: Sequence[dict[str, Any]],
    point: Point,
    how: How,
    *,
    wait_s: float,
    label: str = "aborted",
    temperature: float | None = None,
) -> Reply | None:
    """Send a request and abort it; return what came of it, None when nothing came.

    Raises:
        EndpointError: the server did not answer as it should, which an abort does not excuse.
    """
    label = f"{label}: {point.name}, {how}"
    if point.tokens is not None:
        return await ask.chat(
            messages,
            label=label,
            max_tokens=LONG_TOKENS,
            abort_after_tokens=point.tokens,
            abort_by_call=how is How.CALL,
            traffic=Traffic.DISRUPTIVE,
            temperature=temperature,
        )
    request_id = new_request_id()
    delay_s = wait_s * point.prefill_frac
    if how is How.CALL:
        return await _abort_by_call(ask, messages, request_id, delay_s, label)
    reply: Reply | None = None
    with anyio.move_on_after(delay_s):
        reply = await _long(ask, messages, request_id, label)
    if reply is None:
        ask.exchanges.append(aborted_exchange(request_id, label=label, messages=messages))
    return reply


async def _abort_by_call(
    ask: Ask, messages: Sequence[dict[str, Any]], request_id: str, delay_s: float, label: str
) -> Reply | None:
    async def send() -> Reply | None:
        return await _long(ask, messages, request_id, label)

    async def call() -> Reply | None:
        await anyio.sleep(delay_s)
        for _ in range(CALL_TRIES):
            try:
                await ask.client.abort(request_id)
                break
            except TrafficRefused:  # the request still waits for its slot: nothing to abort yet
                await anyio.sleep(CALL_RETRY_S)
        return None

    return (await together([send, call]))[0]


async def _long(ask: Ask, messages: Sequence[dict[str, Any]], request_id: str, label: str) -> Reply:
    return await ask.chat(
        messages,
        label=label,
        max_tokens=LONG_TOKENS,
        request_id=request_id,
        traffic=Traffic.DISRUPTIVE,
    )


def _registers(plan: Plan) -> tuple[Register, Register]:
    """Return the register of a plan, and the same facts under another first line."""
    one, other = [
        register(seed=plan.seed, facts=plan.facts, lines_between=plan.lines_between, salt=salt)
        for salt in ("", "undisturbed")
    ]
    return one, other


async def _ask_all(
    ask: Ask, base: Sequence[dict[str, Any]], told: Register, *, every: int = 1
) -> dict[int, Judged]:
    """Ask for the facts one by one over one prefix, the last told first."""
    return {
        index: await answer(
            ask,
            [*base, user(told.questions[index])],
            expected_of(told, index),
            label=f"fact {index + 1}",
        )
        for index in range(len(told.codes) - 1, -1, -every)
    }


def _result(judged: Sequence[Judged], context: Sequence[dict[str, Any]]) -> ProbeResult:
    wrong = next((each for each in judged if each.ok is False), None)
    unknown = next((each for each in judged if each.ok is None), None)
    shown = wrong or unknown or judged[0]
    return ProbeResult(
        ok=False if wrong else None if unknown else True,
        score=shown.score,
        value=sum(each.score is Score.RIGHT for each in judged) / len(judged),
        error=unknown.error if unknown and not wrong else "",
        lost=lost_by_length(context, wrong.reply) if wrong else "",
        cell=measured(judged[0].reply),
    )


def _stays_in_prefill(point: Point) -> bool:
    return point.tokens is None or point.tokens == 0


def _probe(
    plan: Plan, told: Register, script: Script, recipe: dict[str, Any], *, requests: int
) -> Probe:
    disruptive = recipe["builder"] == "aborted_probe"
    return Probe(
        family="abort",
        key=f"{plan.point}/{plan.how}/{plan.after}/{plan.facts}/{plan.seed}",
        script=script,
        cell={
            "point": plan.point,
            "how": str(plan.how),
            "after": str(plan.after),
            "facts": plan.facts,
        },
        recipe=recipe,
        expected=", ".join(told.codes),
        cost_tokens=plan.tokens + 70 * requests,
        cost_requests=requests,
        traffic=Traffic.DISRUPTIVE if disruptive else Traffic.PASSIVE,
    )
