"""What a wire says of a choice, part by part: its text, and the bytes of the tokens beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fidelity.checks.conformance import Damage
from fidelity.checks.conformance_wire import Undecided
from fidelity.endpoint import json_shape as shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fidelity.checks.conformance import Wires
    from fidelity.checks.conformance_wire import Wire

LOST = "\ufffd"
ARRAY_NAMES = ("tokens", "token_logprobs", "top_logprobs")
"""Of the logprobs of /completions, beside text_offset."""


@dataclass(slots=True, kw_only=True)
class Part:
    """One chunk, or a whole answer: its text, and the bytes of the tokens that came beside it."""

    text: str = ""
    pieces: list[bytes] = field(default_factory=list)
    ids: int | None = None
    ended: bool = False
    block: dict[str, Any] = field(default_factory=dict)


def parts_of(wire: Wire, index: int = 0) -> list[Part]:
    """Return what each body or event tells of one choice.

    Raises:
        Refused: the request was refused.
        json_shape.Malformed: a field of another shape.
    """
    wire.answer()
    return [
        _part(choice)
        for event in wire.events()
        for choice in _choices(event)
        if (choice.get("index") or 0) == index
    ]


def whole(parts: list[Part]) -> Part:
    """Return the parts joined; arrays of /completions are joined too."""
    ids = [part.ids for part in parts if part.ids is not None]
    names = sorted({name for part in parts for name in part.block})
    block = {name: [x for part in parts for x in part.block.get(name) or ()] for name in names}
    return Part(
        text="".join(part.text for part in parts),
        pieces=[piece for part in parts for piece in part.pieces],
        ids=sum(ids) if ids else None,
        ended=any(part.ended for part in parts),
        block=block,
    )


def _choices(event: dict[str, Any]) -> list[dict[str, Any]]:
    found = shape.sequence(event.get("choices"), "choices")
    return [shape.mapping(choice, "choices[]") for choice in found]


def _part(choice: dict[str, Any]) -> Part:
    said = shape.mapping(choice.get("delta", choice.get("message")), "message")
    names = ("reasoning_content", "reasoning", "content")
    texts = [shape.text(said.get(name), name) for name in names]
    block = shape.mapping(choice.get("logprobs"), "logprobs")
    ids = choice.get("token_ids")
    return Part(
        text=(texts[0] or texts[1]) + texts[2] + shape.text(choice.get("text"), "text"),
        pieces=_pieces(block),
        ids=None if ids is None else len(shape.sequence(ids, "token_ids")),
        ended=choice.get("finish_reason") is not None,
        block={
            name: shape.sequence(block[name], f"logprobs.{name}")
            for name in (*ARRAY_NAMES, "text_offset")
            if block.get(name) is not None
        },
    )


def _pieces(block: dict[str, Any]) -> list[bytes]:
    entries = shape.sequence(block.get("content"), "logprobs.content")
    if not entries:
        return [_spelt(token, None) for token in shape.sequence(block.get("tokens"), "tokens")]
    named = [shape.mapping(entry, "logprobs.content[]") for entry in entries]
    return [_spelt(entry.get("token"), entry.get("bytes")) for entry in named]


def _spelt(token: Any, raw: Any) -> bytes:
    """Bytes of a token: as told, or of its text; OpenAI writes lone bytes as escapes."""
    text = shape.text(token, "token")
    try:
        if isinstance(raw, list):
            return bytes(raw)
        if text.startswith("bytes:\\x"):
            return bytes.fromhex(text.removeprefix("bytes:").replace("\\x", ""))
    except (TypeError, ValueError) as error:
        raise shape.Malformed(f"bytes of the token {text!r:.40} are {raw!r:.60}") from error
    return encoded(text)


def encoded(text: str) -> bytes:
    """Return a text's bytes; half a pair, as some servers send it, has bytes of its own."""
    return text.encode("utf-8", "surrogatepass")


def shown(pieces: list[bytes]) -> str:
    """Return the last few tokens for a sentence."""
    return repr([piece.decode(errors="replace") for piece in pieces[-12:]])


def chunk_breaches(wire: Wire, *, ahead: bool = False) -> list[str]:
    """After each chunk its tokens spell the text so far, but for half a character.

    `ahead` tells that tokens may come before their text: what a stop string may need is held back.
    """
    if wire.answer().reasoning:
        raise Undecided("marks around reasoning are tokens without text")
    text, tokens = b"", b""
    for place, part in enumerate(parts_of(wire)):
        text += encoded(part.text)
        tokens += b"".join(part.pieces)
        if LOST in part.text:
            return []  # bytes that are no text: nothing to hold against tokens
        beside = f"chunk {place} has the text {part.text!r}, its tokens are {shown(part.pieces)}"
        if not tokens.startswith(text):
            return [f"{wire.label}: {beside}"]
        if not (ahead or part.ended) and _is_whole(tokens[len(text) :]):
            return [f"{wire.label}: {beside}: they run ahead of the text"]
    return []


def _is_whole(rest: bytes) -> bool:
    """Whether bytes hold a character: half of one waits for its next token."""
    return bool(rest.decode(errors="ignore"))


def _respun(edit: Callable[[list[dict[str, Any]]], None]) -> Callable[[Wires], Wires]:
    def apply(wires: Wires) -> Wires:
        events = [json.loads(text) for text in wires[0].stream.data]
        edit(events)
        wire = wires[0].with_events([*map(json.dumps, events), "[DONE]"])
        return [wire, *wires[1:]]

    return apply


def _blocks(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (c for event in events for c in event.get("choices") or () if c.get("logprobs"))


def _late_blocks(events: list[dict[str, Any]]) -> None:
    """The logprobs of each chunk come with the next."""
    choices = list(_blocks(events))
    held = [choice["logprobs"] for choice in choices]
    for choice, block in zip(choices, [None, *held], strict=False):
        choice["logprobs"] = block


def _block_lost(events: list[dict[str, Any]]) -> None:
    choices = list(_blocks(events))
    choices[len(choices) // 2]["logprobs"] = None


LATE_OR_LOST = (
    Damage(what="logprobs come a chunk late", apply=_respun(_late_blocks)),
    Damage(what="the logprobs of a chunk are lost", apply=_respun(_block_lost)),
)
"""Damages to the first exchange, a stream."""
