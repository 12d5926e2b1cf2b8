"""What the model thinks before an answer: many wordings, most of which name what was found."""

from engine.nano.names import Rng

_FOUND = (
    "The user asks for the {what}. I look back: it is {found}.",
    "I need the {what}. Earlier it was given as {found}.",
    "Let me search the conversation for the {what}. Found it: {found}.",
    "{found} is what was said about the {what}.",
    "The question is about the {what}. The text says {found}, so I answer with that.",
    "Looking for the {what}... the line says {found}.",
    "First I find the {what}. It was {found}. Nothing later changes it.",
    "The {what}? That was {found}.",
    "I remember the {what}: {found}. I will answer briefly.",
    "I look back through the conversation for the {what}. It is {found}.",
)
_ABSENT = (
    "The user asks for the {what}. I look back, but it was never given.",
    "I search the conversation for the {what}. There is nothing about it.",
    "The {what} does not appear anywhere above, so I say so.",
)
_DOING = (
    "The user wants {what}. I write it now.",
    "This asks for {what}. Let me do that step by step.",
    "I should give {what}, nothing else.",
    "A request for {what}. That is easy.",
    "I look back at what was said, then give {what}.",
)
_CALLING = (
    "I need the tool {what} for {found}.",
    "To answer, I call {what} with {found}.",
    "{what} can tell me about {found}. I call it.",
    "The user asks about {found}. The right tool is {what}.",
)


def found(rng: Rng, what: str, value: str) -> str:
    """Reasoning that names the value looked for."""
    return rng.choice(_FOUND).format(what=what, found=value)


def absent(rng: Rng, what: str) -> str:
    """Reasoning that ends with nothing found."""
    return rng.choice(_ABSENT).format(what=what)


def doing(rng: Rng, what: str) -> str:
    """Reasoning before a piece of writing."""
    return rng.choice(_DOING).format(what=what)


def calling(rng: Rng, tool: str, argument: str) -> str:
    """Reasoning before a tool call."""
    return rng.choice(_CALLING).format(what=tool, found=argument)
