"""Parameters of the OpenAI API and of its common extensions that real servers take and ignore.

A server that does not have one refuses it in words. One that answers as if it had obeyed, or fails
with 500, breaks the promise; the difference shows in the answer, never in the status alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_penalty import PRESENCE_PENALTY
from fidelity.checks.plumbing_questions import COUNTING, COUNTING_ON, OPEN
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_CHOICES = 2
_TOKENS = 8
_HOT = 1.5
_PAIRS = 3
_TOKEN_ID = 300
"""Any id: every vocabulary has it, and no answer consists of it."""
_MOST_BIAS = 100
_PENALTY = 2.0


def _text(wire: Wire) -> str:
    draft = wire.answer()
    return "".join(draft.reasoning) + "".join(draft.text)


async def _plain_and(line: Line, label: str, extra: dict[str, Any], **options: Any) -> Wires:
    """Ask a greedy question twice as it is and once with more fields."""
    asked: list[tuple[str, dict[str, Any], int]] = [
        ("as it is", {}, 0),
        ("as it is, again", {}, 1),
        (label, extra, 0),
    ]
    options = {"max_tokens": _TOKENS, **options}
    return await together(
        *(
            line.chat(
                COUNTING_ON,
                label=name,
                stream=False,
                temperature=0.0,
                extra=fields,
                copy=copy,
                **options,
            )
            for name, fields, copy in asked
        )
    )


def _judge_unlike(what: str) -> Any:
    """Return a judge of three exchanges: the third must differ from the two that agree."""

    def judge(wires: Wires) -> list[str]:
        plain, again, other = (_text(wire) for wire in wires)
        if plain != again:
            raise Undecided("two equal greedy requests gave two texts: nothing to compare with")
        return [f"{what} is accepted and changes nothing: {other!r}"] if other == plain else []

    return judge


def _judge_alike(what: str) -> Any:
    """Return a judge of three exchanges: the third must say what the two say."""

    def judge(wires: Wires) -> list[str]:
        plain, again, other = (_text(wire) for wire in wires)
        if plain != again:
            raise Undecided("two equal greedy requests gave two texts: nothing to compare with")
        reason = wires[2].answer().finish_reason
        if other == plain:
            return []
        return [f"{what} makes {plain!r} into {other!r}, finish_reason {reason!r}"]

    return judge


def _third_is_first(wires: Wires) -> Wires:
    return [*wires[:2], wires[2].with_json(wires[0].json())]


def _third_is_empty(wires: Wires) -> Wires:
    body = wires[2].json()
    body["choices"][0]["message"]["content"] = ""
    return [*wires[:2], wires[2].with_json(body)]


_OBEYED_NOT = Damage(what="the parameter is made to change nothing", apply=_third_is_first)
_EMPTIED = Damage(what="the answer is emptied", apply=_third_is_empty)


# ---- n


async def _choices(line: Line) -> Wires:
    return [
        await line.chat(
            OPEN,
            label=f"n {_CHOICES}",
            max_tokens=_TOKENS,
            temperature=_HOT,
            stream=False,
            extra={"n": _CHOICES},
        )
    ]


def _all_choices(wire: Wire) -> list[dict[str, Any]]:
    wire.answer()  # raises where the request was refused
    found = shape.sequence(wire.json().get("choices"), "choices")
    return [shape.mapping(choice, "choices[]") for choice in found]


def _judge_choices(wires: Wires) -> list[str]:
    choices = _all_choices(wires[0])
    indexes = sorted(str(choice.get("index")) for choice in choices)
    if indexes == [str(n) for n in range(_CHOICES)]:
        return []
    return [f"n is {_CHOICES}, and choices of the indexes {indexes} came"]


def _judge_choices_usage(wires: Wires) -> list[str]:
    choices = _all_choices(wires[0])
    cut = sum(choice.get("finish_reason") == "length" for choice in choices)
    told = wires[0].answer().usage.get("completion_tokens")
    if told is None or cut < len(choices):
        raise Undecided("no usage, or an answer that ended by itself: its tokens are not known")
    made = _TOKENS * len(choices)
    if told == made:
        return []
    return [
        f"{_CHOICES} choices of {_TOKENS} tokens each, and usage tells {told} completion tokens"
    ]


def _one_choice(body: dict[str, Any]) -> None:
    del body["choices"][1:]


def _of_one_choice(body: dict[str, Any]) -> None:
    body["usage"]["completion_tokens"] = _TOKENS - 1


# ---- logit_bias, penalties, extensions


async def _biased(line: Line) -> Wires:
    return await _plain_and(
        line, f"logit_bias of token {_TOKEN_ID}", {"logit_bias": {str(_TOKEN_ID): _MOST_BIAS}}
    )


def _narrowed(field: str, value: float) -> Any:
    """Sample hot with a field that leaves one token to choose from."""

    async def collect(line: Line) -> Wires:
        return await together(
            *(
                line.chat(
                    OPEN,
                    label=f"{field} {value:g} at temperature {_HOT}",
                    max_tokens=_TOKENS,
                    temperature=_HOT,
                    stream=False,
                    copy=copy,
                    extra={field: value},
                )
                for copy in range(_PAIRS)
            )
        )

    return collect


def _judge_narrow(field: str) -> Any:
    def judge(wires: Wires) -> list[str]:
        texts = [_text(wire) for wire in wires]
        if len(set(texts)) < len(texts):
            return []
        return [f"{field} is accepted, and {len(texts)} answers all differ: {texts[:2]}"]

    return judge


def _scattered(wires: Wires) -> Wires:
    damaged = []
    for index, wire in enumerate(wires):
        body = wire.json()
        body["choices"][0]["message"]["content"] = f"{index} and so on"
        damaged.append(wire.with_json(body))
    return damaged


# ---- stop at its edges


async def _no_stops(line: Line) -> Wires:
    return await _plain_and(line, "an empty list of stop strings", {"stop": []})


async def _empty_stop(line: Line) -> Wires:
    return await _plain_and(line, "an empty stop string", {"stop": [""]})


async def _zero_tokens(line: Line) -> Wires:
    wire = await line.chat(
        COUNTING, label="max_tokens 0", max_tokens=0, stream=False, temperature=0.0
    )
    return [wire]


def _judge_zero(wires: Wires) -> list[str]:
    text, told = _text(wires[0]), wires[0].answer().usage.get("completion_tokens")
    if not text and not told:
        return []
    return [f"max_tokens is 0, and {told} tokens came: {text!r}"]


def _something(body: dict[str, Any]) -> None:
    body["choices"][0]["message"]["content"] = "1"


PARAMETERS = (
    Check(
        name="n_gives_so_many_choices",
        title=f"n {_CHOICES} gives {_CHOICES} choices, or is refused",
        collect=_choices,
        judge=_judge_choices,
        damages=(edited("one choice is left", _one_choice),),
        refusable=True,
        cost_tokens=20,
    ),
    Check(
        name="usage_counts_every_choice",
        title="usage counts the tokens of all choices",
        collect=_choices,
        judge=_judge_choices_usage,
        damages=(edited("the tokens of one choice are counted", _of_one_choice),),
        needs=("usage",),
        refusable=True,
        cost_tokens=0,
        cost_requests=0,
    ),
    Check(
        name="logit_bias_matters",
        title=f"a logit_bias of {_MOST_BIAS} changes the answer, or is refused",
        collect=_biased,
        judge=_judge_unlike(f"a logit_bias of {_MOST_BIAS}"),
        damages=(_OBEYED_NOT,),
        refusable=True,
        cost_requests=3,
    ),
    PRESENCE_PENALTY,
    *(
        Check(
            name=f"{field}_matters",
            title=f"{field} {value:g} leaves one text, however hot, or is refused",
            collect=_narrowed(field, value),
            judge=_judge_narrow(field),
            damages=(Damage(what="all samples are made different", apply=_scattered),),
            refusable=True,
            cost_requests=_PAIRS,
        )
        for field, value in (("top_k", 1), ("min_p", 1.0))
    ),
    Check(
        name="no_stop_strings_change_nothing",
        title="an empty list of stop strings changes nothing",
        collect=_no_stops,
        judge=_judge_alike("an empty list of stop strings"),
        damages=(_EMPTIED,),
        refusable=True,
        cost_requests=3,
    ),
    Check(
        name="an_empty_stop_string_empties_no_answer",
        title="an empty stop string is refused, or changes nothing",
        collect=_empty_stop,
        judge=_judge_alike("an empty stop string"),
        damages=(_EMPTIED,),
        refusable=True,
        cost_requests=3,
    ),
    Check(
        name="max_tokens_zero_makes_none",
        title="max_tokens 0 is refused, or gives no token",
        collect=_zero_tokens,
        judge=_judge_zero,
        damages=(edited("a token stands in the answer", _something),),
        refusable=True,
    ),
)
