"""The rendered prompt against the reference encoding, token by token.

Golden vectors (suites/data/encoding_NAME.json) hold conversations and the prompt that each must
become. They are for one encoding: fidelity.toml says `encoding = "NAME"` of a deployment whose
model uses it, or names a file of vectors that its user has made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Check, Damage
from fidelity.checks.conformance_wire import Unsupported
from fidelity.dialects.dialect import read_tokenized
from fidelity.endpoint import json_shape as shape
from fidelity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fidelity.checks.conformance import Collect, Wires
    from fidelity.checks.conformance_wire import Line, Wire

TOPICS = ("turns", "reasoning", "tools", "results")
_AROUND = 24
"""Characters shown before and after the first difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One request and its prompt; None where the request does not say so."""

    name: str
    messages: Sequence[Mapping[str, Any]]
    text: str
    tools: Sequence[Mapping[str, Any]] | None = None
    thinking: bool | None = None
    effort: str | None = None


def read_vectors(encoding: str, *, shipped: Path, beside: Path) -> dict[str, list[Vector]]:
    """Return the vectors of an encoding by topic.

    Args:
        encoding: a name, or a file ending in .json.
        shipped: folder of encoding_NAME.json.
        beside: folder that a relative file is in.

    Raises:
        ConfigError: there is no such file, or it holds no vectors.
    """
    named = encoding.endswith(".json")
    path = beside / encoding if named else shipped / f"encoding_{encoding}.json"
    if not named and not path.is_file():
        known = sorted(p.stem.removeprefix("encoding_") for p in shipped.glob("encoding_*.json"))
        raise ConfigError(
            f"encoding {encoding!r} has no golden vectors; there are: {', '.join(known)}, or the"
            " path of a file of them"
        )
    try:
        topics: dict[str, list[Vector]] = {topic: [] for topic in TOPICS}
        for entry in json.loads(path.read_text(encoding="utf-8"))["vectors"]:
            topics[entry.pop("topic")].append(Vector(**entry))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} holds no golden vectors: {error!r}") from error
    return topics


def encoding_check(topic: str, vectors: Sequence[Vector]) -> Check:
    """Return the claim on the vectors of one topic."""
    return Check(
        name=f"prompt_is_the_reference_encoding[{topic}]",
        title=f"a conversation becomes the prompt that the model was trained on: {topic}",
        collect=_collect(topic, vectors),
        judge=_judge,
        damages=(
            Damage(what="all but the last turn is lost", apply=_each(_last_turn)),
            Damage(what="the mark of reasoning is the other one", apply=_each(_other_mode)),
            Damage(what="spaces at the ends of the prompt are stripped", apply=_each(_spaced)),
        ),
        needs=("tokenize", "detokenize"),
        feature="tokenize",
        cost_tokens=0,
        cost_requests=3 * len(vectors),
    )


def _collect(topic: str, vectors: Sequence[Vector]) -> Collect:
    """Ask for the tokens of each conversation, their text, and the tokens of the golden text.

    The request profile stays out: vectors hold whole requests, its system text would be foreign.
    """

    async def collect(line: Line) -> Wires:
        found: list[Wire] = []
        for vector in vectors:
            name = f"{topic}: {vector.name}"
            asked = await _post(line, "tokenize", _request(line, vector), label=name)
            ids = _ids(asked)
            golden = {"prompt": vector.text, "add_special_tokens": False}
            told = await _post(line, "detokenize", {"tokens": ids}, label=f"text of {name}")
            wanted = await _post(line, "tokenize", golden, label=f"golden text of {name}")
            facts = {"name": name, "golden": vector.text, "golden_ids": _ids(wanted), "ids": ids}
            found.append(replace(asked, facts={**facts, "text": _text(told)}))
        read = await _read_by_a_chat(line, vectors[-1], label=f"chat of {topic}")
        found[-1] = replace(found[-1], facts={**found[-1].facts, "chat_ids": read})
        return found

    return collect


async def _read_by_a_chat(line: Line, vector: Vector, *, label: str) -> list[int] | None:
    """Return the tokens that a chat's model really read; None where the server does not tell."""
    field = line.client.server.dialect.ids_field
    if field is None:
        return None
    asked = {**_request(line, vector), "max_tokens": 1, "temperature": 0.0, field: True}
    content = json.dumps({"model": line.client.server.model, **asked}, ensure_ascii=False)
    wire = await line.post("/chat/completions", content.encode(), label=label, tokens=1)
    tokens = _body(wire).get("prompt_token_ids")
    return None if tokens is None else [shape.whole(token, "token") or 0 for token in tokens]


def _request(line: Line, vector: Vector) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": vector.messages}
    if vector.tools:
        body["tools"] = vector.tools
    if vector.effort:
        body["reasoning_effort"] = vector.effort
    return body | line.client.server.dialect.thinking(vector.thinking)


async def _post(line: Line, what: str, body: Mapping[str, Any], *, label: str) -> Wire:
    dialect = line.client.server.dialect
    path = dialect.tokenize_path if what == "tokenize" else dialect.detokenize_path
    content = json.dumps({"model": line.client.server.model, **body}, ensure_ascii=False)
    return await line.post(f"/{path}", content.encode(), label=label)


def _body(wire: Wire) -> dict[str, Any]:
    if wire.status != 200:
        raise Unsupported(f"{wire.label}: refused with {wire.status} ({wire.said!r})")
    return wire.json()


def _ids(wire: Wire) -> list[int]:
    tokens = read_tokenized(_body(wire)).tokens
    if tokens is None:
        raise Unsupported(f"{wire.label}: the server counts tokens, and does not tell their ids")
    return list(tokens)


def _text(wire: Wire) -> str:
    body = _body(wire)
    return shape.text(
        next((body[key] for key in ("prompt", "text") if key in body), None), "prompt"
    )


def _judge(wires: Wires) -> list[str]:
    problems = []
    for wire in wires:
        name, text, golden = (wire.facts[key] for key in ("name", "text", "golden"))
        if text != golden:
            problems.append(f"{name}: {_difference(text, golden)}")
        elif wire.facts["ids"] != wire.facts["golden_ids"]:
            problems.append(f"{name}: the right text, but in other tokens than the same text alone")
        elif wire.facts.get("chat_ids") not in (None, wire.facts["golden_ids"]):
            problems.append(f"{name}: a chat reads other tokens than /tokenize shows for it")
    return problems


def _difference(text: str, golden: str) -> str:
    pairs = enumerate(zip(text, golden, strict=False))
    at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(text), len(golden)))
    shown = [repr(t[max(0, at - _AROUND) : at + _AROUND]) for t in (text, golden)]
    return f"from character {at} on the prompt is {shown[0]}, the encoding {shown[1]}"


def _each(damage: Callable[[str], str]) -> Callable[[Wires], Wires]:
    """Change the text of every prompt."""

    def apply(wires: Wires) -> Wires:
        return [
            replace(wire, facts={**wire.facts, "text": damage(wire.facts["text"])})
            for wire in wires
        ]

    return apply


def _last_turn(text: str) -> str:
    return text[len(text) // 2 :]


def _other_mode(text: str) -> str:
    return text.removesuffix("</think>") + "<think>" if text.endswith("</think>") else text + " "


def _spaced(text: str) -> str:
    return text.replace("\n", " ") if "\n" in text else f"{text} "
