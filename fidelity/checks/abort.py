"""Requests that are aborted, and what the next request on the same prefix makes of it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import anyio

from fidelity.accounting import lost_by_length
from fidelity.checks.answering import Judged, answer
from fidelity.checks.conversation import as_turn, measured
from fidelity.checks.dealing import dealt
from fidelity.checks.register import Register, register
from fidelity.checks.slips import expected_of, without_slips
from fidelity.checks.together import together
from fidelity.dialogue import user
from fidelity.errors import TrafficRefused
from fidelity.probe import Ask, Probe, ProbeResult, Script, aborted_exchange
from fidelity.request_body import new_request_id
from fidelity.words import Score, Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.records import Trial
    from fidelity.replies import Reply

LONG_TASK = "Count from 1 to 90."
"""Long enough that there is something left to abort, in any vocabulary."""
LONG_TOKENS = 400
FIRST_GUESS_S = 0.1
_FACT_TOKENS = 26
_LINE_TOKENS = 26
CALL_RETRY_S = 0.02
CALL_TRIES = 100


class How(StrEnum):
    """How a request is aborted."""

    CLOSE = "close"
    """The client closes the connection."""
    CALL = "call"
    """The client calls the server's abort endpoint with the request's full id."""


class After(StrEnum):
    """What follows the abort."""

    SAME = "same prompt"
    """The aborted request's own prompt, and other questions over its context."""
    WITH_PARTIAL = "with the partial answer"
    WITHOUT_PARTIAL = "without the partial answer"


@dataclass(frozen=True, slots=True)
class Point:
    """When a request is aborted: after some deltas, or at a share of its time to first token."""

    name: str
    tokens: int | None = None
    prefill_frac: float = 0.0


POINTS = (
    Point("at once", tokens=0),
    Point("prefill .2", prefill_frac=0.2),
    Point("prefill .4", prefill_frac=0.4),
    Point("prefill .6", prefill_frac=0.6),
    Point("prefill .8", prefill_frac=0.8),
    Point("first token", tokens=1),
    Point("few tokens", tokens=4),
    Point("page later", tokens=40),
    Point("late", tokens=100),
)
BY_NAME = {point.name: point for point in POINTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One aborted request and what follows it, as JSON-able axes."""

    seed: str
    point: str
    how: How
    after: After
    facts: int
    lines_between: int = 1

    @property
    def recipe(self) -> dict[str, Any]:
        """Return the axes as JSON."""
        return {
            "seed": self.seed,
            "point": self.point,
            "how": str(self.how),
            "after": str(self.after),
            "facts": self.facts,
            "lines_between": self.lines_between,
        }


class Pace:
    """How long a cold prompt takes here until its first token: the fastest of the last few.

    A request that waits for others looks slow; an abort that is timed by it would come too late.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._s_per_token: deque[float] = deque(maxlen=8)

    def learn(self, reply: Reply) -> None:
        """Take the time of a reply whose prompt was not cached."""
        if reply.ttft_s and reply.prompt_tokens and not reply.cached_tokens:
            self._s_per_token.append(reply.ttft_s / reply.prompt_tokens)

    def first_token_s(self, prompt_tokens: int) -> float:
        """Return the time that a cold prompt should take."""
        return min(self._s_per_token, default=FIRST_GUESS_S / prompt_tokens) * prompt_tokens


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
            ask, messages, point, plan.how, wait_s=pace.first_token_s(_tokens(plan))
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


def plans(
    *,
    seed: int,
    count: int,
    facts: Sequence[int],
    hows: Sequence[How],
    lines_between: int = 1,
    limit_tokens: int | None = None,
    point: str = "",
) -> list[Plan]:
    """Return what to abort: points, ways, follow-ups and sizes, each dealt out evenly.

    Args:
        seed: of the run.
        count: of plans.
        facts: sizes of the register.
        hows: ways of aborting that the deployment has.
        lines_between: lines of filler before each fact.
        limit_tokens: of the deployment's context; registers take at most half of it.
        point: only this one; all of them otherwise.
    """
    if limit_tokens is not None:
        per_fact = _FACT_TOKENS + _LINE_TOKENS * lines_between
        facts = [max(4, min(size, limit_tokens // 2 // per_fact)) for size in facts]
    draw = random.Random(f"aborts {seed} {point}")  # noqa: S311 - prompts, not secrets
    points = [each.name for each in POINTS if not point or each.name == point]
    shares = zip(
        dealt(points, count, draw),
        dealt(hows, count, draw),
        dealt(list(After), count, draw),
        dealt(facts, count, draw),
        strict=True,
    )
    return [
        Plan(
            seed=f"{seed}-{point}-{index}",
            point=name,
            how=how,
            after=after,
            facts=size,
            lines_between=lines_between,
        )
        for index, (name, how, after, size) in enumerate(shares)
    ]


def ways(has_call: bool) -> list[How]:
    """Return the ways of aborting that a deployment has."""
    return [How.CLOSE, How.CALL] if has_call else [How.CLOSE]


def classes_of(trial: Trial) -> list[str]:
    """Return the class of an aborted request: the point at which it was aborted."""
    return [f"point={trial.cell['point']}"] if trial.cell.get("point") in BY_NAME else []


def _stays_in_prefill(point: Point) -> bool:
    return point.tokens is None or point.tokens == 0


def _tokens(plan: Plan) -> int:
    return 30 + plan.facts * (_FACT_TOKENS + _LINE_TOKENS * plan.lines_between)


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
        cost_tokens=_tokens(plan) + 70 * requests,
        cost_requests=requests,
        traffic=Traffic.DISRUPTIVE if disruptive else Traffic.PASSIVE,
    )
