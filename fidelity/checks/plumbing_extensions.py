"""Fields beside the OpenAI API that a dialect documents: what is accepted must show.

A server whose dialect does not have a field is not asked: unknown fields may be ignored there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, Unsupported, together
from fidelity.checks.plumbing_questions import COUNTING, COUNTING_ON
from fidelity.checks.plumbing_shape import edited
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire
    from fidelity.probes.dialogue import Message

_REPETITION = {
    "engine": "repetition_penalty",
    "llamacpp": "repeat_penalty",
    "sglang": "repetition_penalty",
    "vllm": "repetition_penalty",
}
_MIN_TOKENS = dict.fromkeys(("engine", "sglang", "vllm"), "min_tokens")
_IGNORE_EOS = dict.fromkeys(("engine", "llamacpp", "sglang", "vllm"), "ignore_eos")
_STOP_IDS = dict.fromkeys(("engine", "sglang", "vllm"), "stop_token_ids")
"""Names of the fields, by dialect."""
_PENALTY = 2.0
_TOKENS = 16
_ENDING: Sequence[Sequence[Message]] = (
    COUNTING,
    [user("Is the sky blue? Answer yes or no.")],
    [user("Hi")],
)
"""Questions whose answers end soon, for one model or the other."""
_END_TOKENS = 48
_MORE = 6


def _name(line: Line, names: dict[str, str], what: str) -> str:
    """Return how the server's dialect spells a field.

    Raises:
        Unsupported: it does not have it.
    """
    dialect = line.client.server.dialect.name
    if dialect not in names:
        raise Unsupported(f"the dialect {dialect} documents no {what}")
    return names[dialect]


def _text(wire: Wire) -> str:
    draft = wire.answer()
    return "".join(draft.reasoning) + "".join(draft.text)


async def _ask(line: Line, messages: Sequence[Message], label: str, **options: Any) -> Wire:
    return await line.chat(messages, label=label, stream=False, temperature=0.0, **options)


# ---- a penalty for what was said


async def _penalised(line: Line) -> Wires:
    field = _name(line, _REPETITION, "penalty on repetition")
    asked: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("as it is", {}, 0),
        ("as it is, again", {}, 1),
        (f"{field} {_PENALTY:g}", {field: _PENALTY}, 0),
    )
    return await together(
        *(
            _ask(line, messages, label, max_tokens=_TOKENS, extra=extra, copy=copy)
            for messages in (COUNTING_ON, [user("zq xv wy")])
            for label, extra, copy in asked
        )
    )


def _judge_penalised(wires: Wires) -> list[str]:
    texts = [_text(wire) for wire in wires]
    triples = list(zip(texts[::3], texts[1::3], texts[2::3], strict=True))
    repeated = [(plain, other) for plain, again, other in triples if plain == again]
    if any(plain != other for plain, other in repeated):
        return []
    if len(repeated) < len(triples):
        raise Undecided("two equal greedy requests gave two texts: nothing to compare with")
    return [f"a penalty of {_PENALTY} on repetition changes nothing: {texts[2]!r}"]


def _unpenalised(wires: Wires) -> Wires:
    damaged = list(wires)
    for at in range(0, len(wires), 3):
        damaged[at + 1 : at + 3] = [w.with_json(wires[at].json()) for w in wires[at + 1 : at + 3]]
    return damaged


# ---- the end of an answer


async def _past_the_end(line: Line, field: str, value: Any) -> Wires:
    """Find a question whose answer ends by itself, and ask for more than that; last is that."""
    wires: list[Wire] = []
    for messages in _ENDING:
        wires.append(await _ask(line, messages, "as it is", max_tokens=_END_TOKENS))
        draft = wires[-1].answer()
        told = draft.usage.get("completion_tokens")
        if draft.finish_reason == "stop" and told:
            wanted = told + _MORE
            asked = {field: wanted if value is None else value}
            label = f"{field} {asked[field]}"
            wires.append(await _ask(line, messages, label, max_tokens=wanted, extra=asked))
            return wires
    return wires


async def _longer(line: Line) -> Wires:
    return await _past_the_end(line, _name(line, _MIN_TOKENS, "min_tokens"), None)


async def _endless(line: Line) -> Wires:
    return await _past_the_end(line, _name(line, _IGNORE_EOS, "ignore_eos"), True)


def _judge_past(wires: Wires) -> list[str]:
    field = next((n for n in ("min_tokens", "ignore_eos") if n in wires[-1].sent), "")
    if not field:
        raise Undecided(f"no answer ended by itself within {_END_TOKENS} tokens")
    draft, limit = wires[-1].answer(), wires[-1].sent
    wanted = limit.get("max_tokens") or limit.get("max_completion_tokens") or 0
    told = draft.usage.get("completion_tokens")
    if told is None:
        raise Undecided("no usage: the tokens of the answer are not known")
    if told < wanted:
        return [f"{field} is accepted, and the answer ends after {told} tokens, not {wanted}"]
    return []


def _ends_early(wires: Wires) -> Wires:
    if len(wires) < 2 or not {"min_tokens", "ignore_eos"} & set(wires[-1].sent):
        raise Undecided("no answer that ends by itself was asked for more")
    return [*wires[:-1], wires[-1].with_json(wires[-2].json())]


# ---- token ids that end an answer


async def _stopped(line: Line) -> Wires:
    field = _name(line, _STOP_IDS, "stop_token_ids")
    options = {"max_tokens": _TOKENS, "return_token_ids": True}
    plain = await _ask(line, COUNTING_ON, "as it is", **options)
    ids = plain.answer().token_ids or []
    late = [token for at, token in enumerate(ids) if at >= 2 and token not in ids[:at]]
    if not late:
        return [plain]
    extra = {field: [late[0]]}
    return [plain, await _ask(line, COUNTING_ON, f"{field} {late[0]}", extra=extra, **options)]


def _judge_stopped(wires: Wires) -> list[str]:
    if len(wires) < 2:
        raise Undecided("the answer has no token of its own that could end it")
    plain, draft = wires[0].answer(), wires[1].answer()
    token = wires[1].sent["stop_token_ids"][0]
    ids = plain.token_ids or []
    at = ids.index(token)
    told = draft.usage.get("completion_tokens")
    if told is not None and told > at + 1:
        return [f"token {token} came as number {at}, and the answer has {told} tokens"]
    if draft.finish_reason != "stop":
        return [f"token {token} ended the answer, with finish_reason {draft.finish_reason!r}"]
    return []


def _as_unstopped(wires: Wires) -> Wires:
    return [wires[0], wires[1].with_json(wires[0].json())]


def _as_length(wires: Wires) -> Wires:
    changed = edited("", lambda body: body["choices"][0].update(finish_reason="length"))
    return [wires[0], *changed.apply(wires[1:])]


_ENDED = Damage(what="the answer ends where it ended by itself", apply=_ends_early)
EXTENSIONS = (
    Check(
        name="repetition_penalty_matters",
        title=f"a penalty of {_PENALTY:g} on repetition changes an answer, or is refused",
        collect=_penalised,
        judge=_judge_penalised,
        damages=(Damage(what="the penalty is made to change nothing", apply=_unpenalised),),
        optional=True,
        refusable=True,
        cost_requests=6,
        cost_tokens=180,
    ),
    Check(
        name="min_tokens_matters",
        title="min_tokens takes an answer past its end, or is refused",
        collect=_longer,
        judge=_judge_past,
        damages=(_ENDED,),
        needs=("usage",),
        optional=True,
        refusable=True,
        cost_requests=2,
        cost_tokens=120,
    ),
    Check(
        name="ignore_eos_matters",
        title="ignore_eos takes an answer past its end, or is refused",
        collect=_endless,
        judge=_judge_past,
        damages=(_ENDED,),
        needs=("usage",),
        optional=True,
        refusable=True,
        cost_requests=2,
        cost_tokens=120,
    ),
    Check(
        name="stop_token_ids_matter",
        title="an answer ends at a stop_token_id, or it is refused",
        collect=_stopped,
        judge=_judge_stopped,
        damages=(
            Damage(what="the answer goes on", apply=_as_unstopped),
            Damage(what="finish_reason says length", apply=_as_length),
        ),
        needs=("token_ids",),
        optional=True,
        refusable=True,
        cost_requests=2,
    ),
)
