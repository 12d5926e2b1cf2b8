"""A tool call that the request demands: by "required", or by the tool's name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check
from fidelity.checks.conformance_wire import Undecided
from fidelity.checks.plumbing_questions import COUNTING, WEATHER
from fidelity.checks.plumbing_shape import edited

if TYPE_CHECKING:
    from fidelity.checks.conformance import Collect, Wires
    from fidelity.checks.conformance_wire import Line

_NAME = "get_weather"
_TOKENS = 64


def _demanded(choice: Any, label: str) -> Collect:
    """Ask what needs no tool, and demand one."""

    async def collect(line: Line) -> Wires:
        return [
            await line.chat(
                COUNTING,
                label=f"tool_choice {label}",
                tools=[WEATHER],
                extra={"tool_choice": choice},
                max_tokens=_TOKENS,
                stream=False,
                temperature=0.0,
            )
        ]

    return collect


def _judge(wires: Wires) -> list[str]:
    draft = wires[0].answer()
    calls, text = draft.tool_calls(), "".join(draft.text)
    cut = draft.finish_reason == "length"
    if not calls:
        if cut and not text:
            raise Undecided(f"the answer was cut after {_TOKENS} tokens, before any call or text")
        return [f"a call was demanded, and the answer is {text!r:.120}"]
    if any(call.name != _NAME for call in calls):
        return [f"{[call.name for call in calls]} were called, and {_NAME!r} is the only tool"]
    try:
        given = [json.loads(call.arguments) for call in calls]
    except ValueError:
        return [] if cut else [f"arguments are no JSON: {calls[0].arguments[:120]!r}"]
    wrong = [value for value in given if not isinstance(value, dict)]
    return [f"arguments are {wrong[0]!r:.120}, not an object"] if wrong else []


def _uncalled(body: dict[str, Any]) -> None:
    message = body["choices"][0]["message"]
    message.pop("tool_calls", None)
    message["content"] = "1, 2, 3"


TOOL_CHOICE = tuple(
    Check(
        name=f"tool_choice_{label}_calls",
        title=f"with tool_choice {label} a tool is called, or it is refused",
        collect=_demanded(choice, label),
        judge=_judge,
        damages=(edited("the call is left out", _uncalled),),
        needs=("tools",),
        refusable=True,
        cost_tokens=120,
    )
    for label, choice in (
        ("required", "required"),
        ("by_name", {"type": "function", "function": {"name": _NAME}}),
    )
)
