"""What of a conversation reaches the model: every role, turn and form, by token counts alone.

Counts need no clever model: a text that is left out makes the prompt shorter by its tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import COUNTING, WEATHER, WEATHER_QUESTIONS
from fidelity.probes.dialogue import assistant, called, user

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fidelity.checks.conformance import Collect, Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.probes.dialogue import Message

_SAID = "The old clock tower stands by the river, and nine white horses wait at the stone bridge."
_BRIEF = "Be brief."
_LATER = "A silver boat sails to the winter harbor, and seven lamps burn in the music school."
_RENDERED_SHARE = 0.75
"""Of a text's own tokens that must show in the prompt: marks of roles come on top."""
_JOIN_TOKENS = 4
"""By which parts and one text may differ: servers join parts with a line end, or with nothing."""


def _longer(base: Sequence[Message], more: Sequence[Message]) -> Collect:
    """Return what sends a conversation without and with more of it."""

    async def collect(line: Line) -> Wires:
        return await together(
            line.chat(base, label="without", max_tokens=1, stream=False),
            line.chat(more, label="with", max_tokens=1, stream=False),
        )

    return collect


def _tokens(wire: Wire) -> int:
    count = wire.answer().usage.get("prompt_tokens")
    if count is None:
        raise Undecided("the server tells no usage, so nothing shows what it rendered")
    return count


def _judge_longer(wires: Wires) -> list[str]:
    without, with_it = _tokens(wires[0]), _tokens(wires[1])
    own = len(_SAID.split())  # a word takes a token at least
    if with_it - without >= _RENDERED_SHARE * own:
        return []
    return [f"a text of {own} words more makes the prompt {with_it - without} tokens longer"]


async def _both_forms(line: Line) -> Wires:
    parts = [{"type": "text", "text": _SAID}, {"type": "text", "text": _LATER}]
    forms: list[Any] = [f"{_SAID}{_LATER}", parts, parts[:1], _SAID]
    labels = ("one text", "two parts", "one part", "its text")
    return await together(
        *(
            line.chat([user(form)], label=label, max_tokens=1, stream=False)
            for form, label in zip(forms, labels, strict=True)
        )
    )


def _judge_forms(wires: Wires) -> list[str]:
    text, parts, one_part, one_text = (_tokens(wire) for wire in wires)
    problems = []
    if abs(parts - text) > _JOIN_TOKENS:
        problems.append(f"{text} tokens as one text and {parts} as two text parts")
    if abs(one_part - one_text) > _JOIN_TOKENS:
        problems.append(f"{one_text} tokens as a text and {one_part} as one text part")
    return problems


def _turns() -> list[Message]:
    return [user(_SAID), assistant("OK."), user(_LATER), assistant("OK."), *COUNTING]


async def _growing(line: Line) -> Wires:
    turns = _turns()
    return await together(
        *(
            line.chat(turns[start:], label=f"{5 - start} messages", max_tokens=1, stream=False)
            for start in (4, 2, 0)
        )
    )


def _judge_growing(wires: Wires) -> list[str]:
    counts = [_tokens(wire) for wire in wires]
    words = (len(_LATER.split()), len(_SAID.split()))
    problems = []
    for shorter, longer, own in zip(counts, counts[1:], words, strict=False):
        if longer - shorter < _RENDERED_SHARE * own:
            problems.append(f"an earlier turn of {own} words adds {longer - shorter} tokens")
    return problems


def _with_calls(arguments: Any = None) -> list[Message]:
    turns = called("get_weather", {"city": _SAID}, '{"temp": 17}', call_id="call_w")
    turns[0]["content"] = None
    if arguments is not None:
        turns[0]["tool_calls"][0]["function"]["arguments"] = arguments
    return [user(WEATHER_QUESTIONS[0]), *turns]


async def _null_content(line: Line) -> Wires:
    conversations = (_with_calls('{"city": "x"}'), _with_calls())
    return await together(
        *(
            line.chat(messages, label=label, tools=[WEATHER], max_tokens=1, stream=False)
            for messages, label in zip(conversations, ("short call", "long call"), strict=True)
        )
    )


async def _rendered_call(line: Line) -> Wires:
    counted = await line.client.tokenize(_with_calls('{"city": "Oslo"}'), tools=[WEATHER])
    text = await line.client.detokenize(counted.tokens or ())
    return [line.note("rendered", text=text)]


def _judge_rendered_call(wires: Wires) -> list[str]:
    text = wires[0].facts["text"]
    if "Oslo" not in text:
        return [f"the argument of a call in the history is not in the prompt: {text[-200:]!r}"]
    if '\\"city\\"' in text or '\\"Oslo\\"' in text:
        return [f"arguments of the history are written as JSON twice: {text[-200:]!r}"]
    return []


def _written_twice(wires: Wires) -> Wires:
    text = wires[0].facts["text"].replace("Oslo", '{\\"city\\": \\"Oslo\\"}')
    return [replace(wires[0], facts={"text": text})]


async def _ids(line: Line) -> Wires:
    chat = await line.chat(
        COUNTING,
        label="chat with ids",
        max_tokens=12,
        stream=False,
        temperature=0.0,
        return_token_ids=True,
    )
    ids = chat.answer().prompt_token_ids if chat.status == 200 else None
    if not ids:
        return [chat]
    completed = await line.complete(
        ids, label="completion of its ids", max_tokens=12, stream=False, temperature=0.0
    )
    return [chat, completed]


def _judge_start(wires: Wires) -> list[str]:
    ids = wires[0].answer().prompt_token_ids
    if not ids or len(ids) < 2:
        raise Undecided("no ids of the prompt in the answer")
    return [f"the prompt starts with token {ids[0]} twice: {ids[:4]}"] if ids[0] == ids[1] else []


def _judge_same_path(wires: Wires) -> list[str]:
    chat = wires[0].answer()
    if len(wires) < 2:
        raise Undecided("no ids of the prompt in the answer")
    completed = wires[1].answer()
    one, other = "".join(chat.text), "".join(completed.text)
    told = chat.usage.get("prompt_tokens"), completed.usage.get("prompt_tokens")
    if told[0] != told[1]:
        return [f"{told[0]} prompt tokens as a chat and {told[1]} as a completion of its ids"]
    return [] if one.strip() == other.strip() else [f"chat says {one!r}, completion {other!r}"]


def _twice(body: dict[str, Any]) -> None:
    places = [body, *body["choices"]]
    for place in places:
        if place.get("prompt_token_ids"):
            place["prompt_token_ids"].insert(0, place["prompt_token_ids"][0])


def _other_text(wires: Wires) -> Wires:
    body = wires[0].json()
    body["choices"][0]["message"]["content"] = "word salad"
    return [wires[0].with_json(body), *wires[1:]]


def _first_body(wires: Wires, edit: Callable[[dict[str, Any]], None]) -> Wires:
    body = wires[0].json()
    edit(body)
    return [wires[0].with_json(body), *wires[1:]]


def _unrendered(place: int) -> Damage:
    """Count an exchange's prompt as if it had been that of the first."""

    def apply(wires: Wires) -> Wires:
        body = wires[place].json()
        body["usage"]["prompt_tokens"] = _tokens(wires[0]) + (20 if place == 0 else 0)
        return [*wires[:place], wires[place].with_json(body), *wires[place + 1 :]]

    return Damage(what="the longer prompt is counted as if its text were lost", apply=apply)


def _role_check(role: str, *, optional: bool = False) -> Check:
    """Both arms have a turn of the role: a template may put a default text where there is none."""
    brief, turn = ({"role": role, "content": text} for text in (_BRIEF, f"{_BRIEF} {_SAID}"))
    return Check(
        name=f"{role}_text_is_rendered",
        title=f"what stands in a {role} message is part of the prompt",
        collect=_longer([brief, *COUNTING], [turn, *COUNTING]),
        judge=_judge_longer,
        damages=(_unrendered(1),),
        optional=optional,
        needs=("usage",),
        cost_requests=2,
    )


HISTORY = (
    _role_check("system"),
    _role_check("developer", optional=True),
    Check(
        name="earlier_turns_are_rendered",
        title="every earlier turn is part of the prompt",
        collect=_growing,
        judge=_judge_growing,
        damages=(_unrendered(1),),
        needs=("usage",),
        cost_requests=3,
        cost_tokens=200,
    ),
    Check(
        name="text_parts_count_like_a_text",
        title="content given as text parts is rendered whole, the first part and the last",
        collect=_both_forms,
        judge=_judge_forms,
        damages=(_unrendered(0),),
        needs=("usage",),
        cost_requests=4,
        cost_tokens=200,
    ),
    Check(
        name="null_content_with_tool_calls",
        title="an assistant turn of tool calls alone is accepted and rendered",
        collect=_null_content,
        judge=_judge_longer,
        damages=(_unrendered(1),),
        needs=("tools", "usage"),
        cost_requests=2,
        cost_tokens=300,
    ),
    Check(
        name="arguments_of_the_history_are_rendered_once",
        title="arguments of an earlier call stand in the prompt, and are not encoded twice",
        collect=_rendered_call,
        judge=_judge_rendered_call,
        damages=(Damage(what="arguments are encoded twice", apply=_written_twice),),
        needs=("tools", "tokenize", "detokenize"),
        cost_tokens=0,
    ),
    Check(
        name="prompt_starts_once",
        title="a prompt has its first token once",
        collect=_ids,
        judge=_judge_start,
        damages=(
            Damage(what="the first token is doubled", apply=lambda w: _first_body(w, _twice)),
        ),
        needs=("token_ids",),
    ),
    Check(
        name="chat_equals_the_completion_of_its_ids",
        title="a chat and a completion of its prompt's ids give one text",
        collect=_ids,
        judge=_judge_same_path,
        damages=(Damage(what="the chat says something else", apply=_other_text),),
        needs=("token_ids", "completions"),
        cost_requests=2,
    ),
)
