"""What stands beside a token with its logprob: alternatives, bytes and ids of that very token."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Undecided, together
from fidelity.checks.plumbing_questions import COUNTING, COUNTING_ON, OPEN
from fidelity.checks.plumbing_shape import edited
from fidelity.endpoint import json_shape as shape
from fidelity.probes.dialogue import user

if TYPE_CHECKING:
    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Line, Wire

_TOKENS = 6
_TOPS = 3
_HOT = 1.5
_SEED = 20_240_607
_SAMPLES = 4
_VERY_HOT = 2.0
_NOISE_NATS = 0.25
"""Between two computations of one value."""
_SAME_NATS = 1e-3
"""Of two mentions of one value within one answer."""
_MANY_TOKENS = "\U0001f680" * 6
_LOST = "\ufffd"


async def _chat(line: Line, label: str, extra: dict[str, Any], **options: Any) -> Wires:
    options = {"temperature": 0.0, "max_tokens": _TOKENS, **options}
    messages = OPEN if options["temperature"] else COUNTING
    return [await line.chat(messages, label=label, stream=False, extra=extra, **options)]


async def _none_asked(line: Line) -> Wires:
    return await _chat(line, "logprobs without top_logprobs", {"logprobs": True})


async def _zero_asked(line: Line) -> Wires:
    return await _chat(line, "top_logprobs 0", {"logprobs": True, "top_logprobs": 0})


async def _hot(line: Line) -> Wires:
    extra = {"logprobs": True, "top_logprobs": _TOPS}
    return await _chat(
        line, f"temperature {_HOT}", extra, temperature=_HOT, seed=_SEED, max_tokens=12
    )


async def _first_tokens(line: Line) -> Wires:
    """Ask for one token: greedy with an alternative more, and sampled with several seeds."""

    async def one(label: str, tops: int, **options: Any) -> Wire:
        return await line.chat(
            OPEN,
            label=label,
            max_tokens=1,
            stream=False,
            extra={"logprobs": True, "top_logprobs": tops},
            **options,
        )

    return await together(
        one("greedy", _TOPS + 1, temperature=0.0),
        *(
            one(f"seed {_SEED + n}", _TOPS, temperature=_VERY_HOT, seed=_SEED + n)
            for n in range(_SAMPLES)
        ),
    )


def _judge_first_tokens(wires: Wires) -> list[str]:
    """What is likely does not depend on what was drawn; the chosen token may stand beside it."""
    greedy, *sampled = (_entries(wire)[0] for wire in wires)
    values = {str(top.get("token")): _value(top) for top in _tops(greedy)}
    ordered = sorted(values.values(), reverse=True)
    if len(ordered) < _TOPS + 1:
        raise Undecided(f"{len(ordered)} alternatives for {_TOPS + 1} that were asked for")
    clear = [token for token, value in values.items() if value > ordered[_TOPS] + _NOISE_NATS]
    for wire, entry in zip(wires[1:], sampled, strict=True):
        listed = [str(top.get("token")) for top in _tops(entry)]
        missing = [token for token in clear if token not in listed]
        if missing:
            drawn = f"{wire.label}: {entry.get('token')!r} was drawn"
            return [f"{drawn}, and the likelier {missing} are not among its alternatives {listed}"]
    return []


def _value(top: dict[str, Any]) -> float:
    return shape.number(top.get("logprob"), "logprob") or 0.0


def _displaced(wires: Wires) -> Wires:
    """The drawn token takes the place of the best."""
    body = wires[1].json()
    tops = body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    tops[0] = {"token": "drawn", "logprob": -12.0}
    return [wires[0], wires[1].with_json(body), *wires[2:]]


async def _greedy(line: Line) -> Wires:
    return await _chat(line, "greedy", {"logprobs": True, "top_logprobs": _TOPS})


def _entries(wire: Wire) -> list[dict[str, Any]]:
    wire.answer()  # raises where the request was refused
    block = shape.mapping(wire.choice().get("logprobs"), "logprobs")
    content = shape.sequence(block.get("content"), "logprobs.content")
    if not content:
        raise shape.Malformed("logprobs were asked for, and the answer has none")
    return [shape.mapping(entry, "logprobs.content[]") for entry in content]


def _tops(entry: dict[str, Any]) -> list[dict[str, Any]]:
    found = shape.sequence(entry.get("top_logprobs"), "top_logprobs")
    return [shape.mapping(top, "top_logprobs[]") for top in found]


def _judge_none_asked(wires: Wires) -> list[str]:
    """Some servers list the chosen token as its own alternative."""
    most = max(len(_tops(entry)) for entry in _entries(wires[0]))
    return [f"no alternatives were asked for, and a token has {most}"] if most > 1 else []


def _judge_zero(wires: Wires) -> list[str]:
    tokens = len(_entries(wires[0]))
    told = wires[0].answer().usage.get("completion_tokens")
    return [f"{tokens} tokens have logprobs, of {told}"] if told and tokens < told - 1 else []


def _judge_mentions(wires: Wires) -> list[str]:
    """A sampled token need not be the best; where it is listed, it has one value."""
    problems = []
    for place, entry in enumerate(_entries(wires[0])):
        value = shape.number(entry.get("logprob"), "logprob")
        best = max((shape.number(top.get("logprob"), "logprob") or 0.0) for top in _tops(entry))
        if value is None:
            return [f"token {place} ({entry.get('token')!r}) has the logprob None"]
        if value > best + _SAME_NATS:
            problems.append(f"token {place} has {value:.4f}, and its best alternative {best:.4f}")
        for top in _tops(entry):
            other = shape.number(top.get("logprob"), "logprob")
            same = top.get("token") == entry.get("token") and _one_id(top, entry)
            if same and other is not None and abs(other - value) > _SAME_NATS:
                problems.append(
                    f"token {place} ({entry['token']!r}) has {value:.4f}, and {other:.4f} among its"
                    " own alternatives"
                )
    return problems


def _one_id(top: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Two tokens may have one text; ids tell them apart where there are any."""
    return bool(top.get("id") == entry.get("id") and top.get("bytes") == entry.get("bytes"))


def _judge_bytes(wires: Wires) -> list[str]:
    seen = False
    for place, entry in enumerate(_entries(wires[0])):
        for named in (entry, *_tops(entry)):
            raw, token = named.get("bytes"), named.get("token")
            if not isinstance(raw, list) or not isinstance(token, str):
                continue
            seen = True
            text = bytes(raw).decode("utf-8", "replace")
            if _LOST not in text and _LOST not in token and text != token:
                return [f"at token {place} the bytes spell {text!r}, the token is {token!r}"]
    if not seen:
        raise Undecided("the answer has no bytes of tokens")
    return []


async def _emojis(line: Line) -> Wires:
    """Ask for characters that most vocabularies spell with several tokens each."""
    return [
        await line.chat(
            [user(f"Repeat exactly: {_MANY_TOKENS}")],
            label="characters of several tokens",
            max_tokens=24,
            stream=False,
            temperature=0.0,
            extra={"logprobs": True, "top_logprobs": _TOPS},
        )
    ]


def _judge_within_characters(wires: Wires) -> list[str]:
    draft, entries = wires[0].answer(), _entries(wires[0])
    told = draft.usage.get("completion_tokens")
    if told is None or "".join(draft.text).isascii():
        raise Undecided("no usage, or an answer without characters of several tokens")
    problems = []
    if len(entries) not in {told, told - 1}:
        problems.append(f"{told} tokens were generated, and {len(entries)} have logprobs")
    for place, entry in enumerate(entries):
        nameless = [top for top in _tops(entry) if not top.get("token") and not top.get("bytes")]
        if len(nameless) > 1:
            problems.append(
                f"token {place}: {len(nameless)} of {len(_tops(entry))} alternatives have neither"
                " text nor bytes, and cannot be told apart"
            )
        elif not any(_one_token(top, entry) for top in _tops(entry)):
            listed = [(top.get("token"), top.get("bytes")) for top in _tops(entry)]
            told_of = f"{entry.get('token')!r} {entry.get('bytes')}"
            problems.append(f"token {place} ({told_of}) is none of its alternatives: {listed}")
    return problems


def _one_token(top: dict[str, Any], entry: dict[str, Any]) -> bool:
    return top.get("token") == entry.get("token") and top.get("bytes") == entry.get("bytes")


def _nameless(body: dict[str, Any]) -> None:
    for entry in body["choices"][0]["logprobs"]["content"]:
        for top in entry["top_logprobs"]:
            top.update(token="", bytes=[])


async def _with_ids(line: Line) -> Wires:
    chat = await line.chat(
        COUNTING_ON,
        label="with ids",
        max_tokens=_TOKENS,
        stream=False,
        temperature=0.0,
        return_token_ids=True,
    )
    ids = chat.answer().token_ids or ()
    spelt = await line.client.detokenize(ids)
    counted = await line.client.tokenize(COUNTING_ON)
    facts = {"spelt": spelt, "prompt": list(counted.tokens or ())}
    return [chat, line.note("the server's tokenizer", **facts)]


def _judge_ids(wires: Wires) -> list[str]:
    draft, facts = wires[0].answer(), wires[1].facts
    text, ids = "".join(draft.text), draft.token_ids or []
    told = draft.usage.get("completion_tokens")
    problems = []
    if text and text.strip() not in facts["spelt"]:
        problems.append(f"the ids of the answer spell {facts['spelt']!r}, the text is {text!r}")
    if told is not None and len(ids) != told:
        problems.append(f"{len(ids)} ids, and usage tells {told} completion tokens")
    if facts["prompt"] and draft.prompt_token_ids != facts["prompt"]:
        problems.append("prompt_token_ids are not those of the tokenizer for the same messages")
    return problems


def _moved_bytes(body: dict[str, Any]) -> None:
    content = body["choices"][0]["logprobs"]["content"]
    for entry, other in pairwise(content):
        entry["bytes"] = other["bytes"]


def _many_tops(body: dict[str, Any]) -> None:
    for entry in body["choices"][0]["logprobs"]["content"]:
        entry["top_logprobs"] = [{"token": str(n), "logprob": -1.0 - n} for n in range(5)]


def _no_content(body: dict[str, Any]) -> None:
    body["choices"][0]["logprobs"] = {"content": []}


def _above_best(body: dict[str, Any]) -> None:
    for entry in body["choices"][0]["logprobs"]["content"]:
        entry["logprob"] += 1.0


def _fewer_ids(body: dict[str, Any]) -> None:
    for place in (body, *body["choices"]):
        if place.get("token_ids"):
            place["token_ids"] = place["token_ids"][1:]


def _other_text(wires: Wires) -> Wires:
    return [wires[0], replace(wires[1], facts={**wires[1].facts, "spelt": "word salad"})]


ALTERNATIVES = (
    Check(
        name="no_alternatives_unless_asked",
        title="logprobs without top_logprobs come without alternatives",
        collect=_none_asked,
        judge=_judge_none_asked,
        damages=(edited("five alternatives are put in", _many_tops),),
        feature="logprobs",
    ),
    Check(
        name="zero_alternatives_leave_the_logprobs",
        title="with top_logprobs 0 each token still has its logprob",
        collect=_zero_asked,
        judge=_judge_zero,
        damages=(edited("logprobs are left out", _no_content),),
        feature="logprobs",
    ),
    Check(
        name="sampled_tokens_have_one_value",
        title="a sampled token has one logprob, no larger than its best alternative's",
        collect=_hot,
        judge=_judge_mentions,
        damages=(edited("a nat is added to each", _above_best),),
        feature="top_logprobs",
    ),
    Check(
        name="alternatives_are_the_likeliest",
        title="alternatives are the likeliest tokens, whatever was drawn",
        collect=_first_tokens,
        judge=_judge_first_tokens,
        damages=(Damage(what="the drawn token takes the best one's place", apply=_displaced),),
        feature="top_logprobs",
        cost_requests=1 + _SAMPLES,
        cost_tokens=100,
    ),
    Check(
        name="bytes_spell_their_token",
        title="bytes of tokens and alternatives spell their text",
        collect=_greedy,
        judge=_judge_bytes,
        damages=(edited("bytes move on by one token", _moved_bytes),),
        feature="top_logprobs",
    ),
    Check(
        name="tokens_within_a_character",
        title="each token of a character of several has its own logprob, text or bytes",
        collect=_emojis,
        judge=_judge_within_characters,
        damages=(edited("alternatives lose text and bytes", _nameless),),
        feature="top_logprobs",
        cost_tokens=70,
    ),
    Check(
        name="ids_spell_the_answer",
        title="token ids are those of the answer and of the prompt",
        collect=_with_ids,
        judge=_judge_ids,
        damages=(
            edited("an id is dropped", _fewer_ids),
            Damage(what="the ids spell another text", apply=_other_text),
        ),
        needs=("token_ids", "tokenize", "detokenize", "usage"),
    ),
)
