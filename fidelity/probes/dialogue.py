"""Scripted conversations: facts told in turns, updated, with other business in between."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fidelity.probes.filler import filler_of, numbered
from fidelity.probes.needles import ask as ask_for_code
from fidelity.probes.needles import draw_code, draw_name, tell

_FACTS = {
    "lucky number": 4,
    "locker code": 4,
    "door code": 5,
    "badge number": 4,
    "gate code": 4,
    "order number": 5,
    "ticket number": 5,
    "account number": 5,
    "room number": 4,
    "house number": 4,
}
"""What people tell of themselves, and how many digits it has."""
_WEATHER_CITIES = ("Paris", "Oslo", "Lisbon", "Rome", "Cairo", "Tokyo", "Prague", "Dublin")
READ = "Read these notes.\n"

Message = dict[str, Any]


class Shape(StrEnum):
    """What happens between the telling and the asking."""

    TURNS = "turns"
    """Other facts, each in a turn of its own."""
    UPDATE = "update"
    """The fact changes; the last value counts."""
    NOTES = "notes"
    """A long message of filler."""
    TOOL_CALL = "tool call"
    """A tool is called and answers."""
    TOOL_RESULT = "tool result"
    """The fact itself stands in what a tool returned."""
    SYSTEM = "system"
    """The fact stands in the system message."""
    REASONING = "reasoning"
    """A turn that is answered with reasoning, which goes back into the history."""


TOOL_SHAPES = (Shape.TOOL_CALL, Shape.TOOL_RESULT)
_ABOUT_A_CODE = (*TOOL_SHAPES, Shape.SYSTEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a conversation is made from.

    Attributes:
        seed: of every choice.
        shape: what happens between telling and asking.
        facts: told in turns of their own, at least one.
        note_lines: of filler, where the shape has any.
    """

    seed: str
    shape: Shape
    facts: int
    note_lines: int = 0

    @property
    def recipe(self) -> Message:
        """Return the outline as JSON."""
        return {
            "seed": self.seed,
            "shape": str(self.shape),
            "facts": self.facts,
            "note_lines": self.note_lines,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One user turn. Where `scripted` is given, it stands for the model's answer, and more."""

    text: str
    scripted: tuple[Message, ...] = ()
    thinking: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """Turns, and a question that only they answer.

    Attributes:
        turns: told one after the other.
        question: asked last.
        right: the answer, digits.
        superseded: earlier values of the fact.
        distractors: the other facts' values.
        statements: the same facts, current values only, for one message.
        notes: filler of the conversation, for the one message.
        tools: offered in every request of the conversation.
        system: text of a system message before the turns.
    """

    turns: tuple[Turn, ...]
    question: str
    right: str
    superseded: tuple[str, ...]
    distractors: tuple[str, ...]
    statements: tuple[str, ...]
    notes: str = ""
    tools: tuple[Message, ...] = field(default=())
    system: str = ""

    def in_one_message(self) -> str:
        """Return everything that was told, and the question, as one message."""
        told = "".join(f"{statement}\n" for statement in self.statements)
        return f"{told}{self.notes}{self.question}"


def user(text: str) -> Message:
    """Return a user turn."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """Return an assistant turn."""
    return {"role": "assistant", "content": text}


def tool(name: str, description: str, argument: str) -> Message:
    """Return the schema of a tool with one text argument."""
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def called(name: str, arguments: Message, result: str, *, call_id: str) -> list[Message]:
    """Return the assistant turn that calls a tool, and the tool's answer."""
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def dialogue(outline: Outline) -> Dialogue:
    """Return the conversation of an outline; the same outline gives the same conversation."""
    draw = random.Random(f"dialogue {outline.seed}")  # noqa: S311 - prompts, not secrets
    names = draw.sample(sorted(_FACTS), outline.facts)
    values = {name: draw_code(draw, _FACTS[name]) for name in names}
    if outline.shape in _ABOUT_A_CODE:
        return _about_a_code(outline, draw, values)
    return _about_oneself(outline, draw, values)


def _told(values: Mapping[str, str]) -> list[str]:
    return [f"My {name} is {value}." for name, value in values.items()]


def _about_oneself(outline: Outline, draw: random.Random, values: dict[str, str]) -> Dialogue:
    """Return a conversation whose question asks for one of the facts told in turns."""
    chosen = draw.choice(list(values))
    turns = [Turn(text=text) for text in _told(values)]
    superseded: tuple[str, ...] = ()
    notes = ""
    match outline.shape:
        case Shape.UPDATE:
            superseded = (values[chosen],)
            values = {**values, chosen: _other_code(draw, values[chosen])}
            turns.append(Turn(text=f"Actually, my {chosen} is {values[chosen]}."))
        case Shape.NOTES:
            notes = numbered(filler_of(f"notes {outline.seed}").sentences(outline.note_lines))
            turns.append(Turn(text=f"{READ}{notes}"))
        case Shape.REASONING:
            other = draw.choice(list(values))
            turns.append(Turn(text=f"What is my {other}?", thinking=True))
    return Dialogue(
        turns=tuple(turns),
        question=f"What is my {chosen}?",
        right=values[chosen],
        superseded=superseded,
        distractors=tuple(v for v in values.values() if v != values[chosen]),
        statements=tuple(_told(values)),
        notes=notes,
    )


def _about_a_code(outline: Outline, draw: random.Random, values: Mapping[str, str]) -> Dialogue:
    """Return a conversation whose question asks for a code told elsewhere than the facts."""
    name, code = draw_name(draw), draw_code(draw)
    fact = tell(name, code)
    turns = [Turn(text=text) for text in _told(values)]
    tools: tuple[Message, ...] = ()
    system = ""
    match outline.shape:
        case Shape.TOOL_CALL:
            turns += [Turn(text=fact), _weather_turn(draw)]
            tools = (tool("get_weather", "Get the weather of a city", "city"),)
        case Shape.TOOL_RESULT:
            turns.append(_file_turn(draw, outline, fact))
            tools = (tool("read_file", "Read a file", "path"),)
        case Shape.SYSTEM:
            system = f"You are a helpful assistant. {fact}"
    return Dialogue(
        turns=tuple(turns),
        question=ask_for_code(name),
        right=code,
        superseded=(),
        distractors=tuple(v for v in values.values() if v != code),
        statements=(*_told(values), fact),
        tools=tools,
        system=system,
    )


def _other_code(draw: random.Random, old: str) -> str:
    while (new := draw_code(draw, len(old))) == old:
        pass
    return new


def _weather_turn(draw: random.Random) -> Turn:
    city, degrees = draw.choice(_WEATHER_CITIES), draw.randint(-9, 39)
    answered = called(
        "get_weather", {"city": city}, json.dumps({"temp": degrees}), call_id="call_weather"
    )
    said = assistant(f"It is {degrees} degrees in {city}.")
    return Turn(text=f"What is the weather in {city}?", scripted=(*answered, said))


def _file_turn(draw: random.Random, outline: Outline, statement: str) -> Turn:
    lines = list(filler_of(f"file {outline.seed}").sentences(outline.note_lines))
    lines.insert(draw.randint(0, len(lines)), statement)
    answered = called(
        "read_file", {"path": "notes.txt"}, numbered(lines).rstrip(), call_id="call_file"
    )
    return Turn(text="Read notes.txt.", scripted=(*answered, assistant("I have read it.")))
