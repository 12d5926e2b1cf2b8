"""Tool calls in the chat layout: the section of schemas, the call block, the result, the answer.

Two layouts are taught. The checkpoint's own: the section follows BOS (or the system text and a
blank line) at once, and a call block without text before it starts at once. DeepSeek-V4's: the
section starts with a blank line, and so does every call block. The section tells which is meant.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from engine.nano import thinking
from engine.nano.chat import DSML, END_RESULT, RESULT, SOFT, Conversation, Document
from engine.nano.families.recall import ACKNOWLEDGEMENTS, opening
from engine.nano.names import Rng, digits, open_name, open_phrase, open_word
from engine.nano.vocabulary import words

V4_HEADER = (
    "\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can "
    f'invoke tools by writing a "<{DSML}tool_calls>" block like the following:\n\n'
    f'<{DSML}tool_calls>\n<{DSML}invoke name="$TOOL_NAME">\n'
    f'<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE'
    f"</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}tool_calls>\n\n### Available Tool Schemas\n\n"
)
_BEFORE_CALL = ("", "", "", "Let me look that up.", "One moment.", "I will check.")


@dataclass(frozen=True, slots=True)
class Tool:
    """One function of one parameter. `run` draws a result and what to answer with it."""

    name: str
    parameter: str
    description: str
    argument: Callable[[Rng], str]
    questions: tuple[str, ...]
    run: Callable[[Rng], tuple[str, str]]
    answer: str
    number: bool = False


def _city(rng: Rng) -> str:
    return rng.choice(words("cities")) if rng.random() < 0.5 else open_name(rng)


def _thing(rng: Rng) -> str:
    return f"{rng.choice(words('adjectives'))} {rng.choice(words('nouns'))}"


def _json(
    key: str, draw: Callable[[Rng], str], *, quoted: bool = False
) -> Callable[[Rng], tuple[str, str]]:
    def run(rng: Rng) -> tuple[str, str]:
        found = draw(rng)
        return f'{{"{key}": "{found}"}}' if quoted else f'{{"{key}": {found}}}', found

    return run


def _plain(draw: Callable[[Rng], str]) -> Callable[[Rng], tuple[str, str]]:
    def run(rng: Rng) -> tuple[str, str]:
        found = draw(rng)
        return found, found

    return run


TOOLS = (
    Tool(
        "get_weather", "city", "Get the weather of a city", _city,
        ("What is the weather in {v}?", "Weather in {v}?", "How is the weather in {v} today?"),
        _json("temp", lambda r: str(r.randint(-9, 39))), "It is {t} degrees in {v}.",
    ),
    Tool(
        "get_price", "item", "Get the price of an item", _thing,
        ("How much is the {v}?", "What does the {v} cost?"),
        _json("price", lambda r: str(r.randint(1, 999))), "The {v} costs {t} coins.",
    ),
    Tool(
        "read_file", "path", "Read a file", lambda r: f"{open_word(r)}.txt",
        ("Read {v}.", "What is in {v}?", "Show me {v}."),
        _plain(lambda r: f"{_thing(r)} {digits(r, 3)}"), "The file {v} says: {t}",
    ),
    Tool(
        "find_user", "name", "Find a user by name", open_name,
        ("Find the user {v}.", "Who is {v}?", "Look up {v}."),
        _json("id", lambda r: str(r.randint(100, 99999))), "The id of {v} is {t}.",
    ),
    Tool(
        "search", "query", "Search the web", lambda r: r.choice((_thing(r), open_phrase(r))),
        ("Search for {v}.", "Search the web for {v}."),
        _plain(open_name), "I found: {t}",
    ),
    Tool(
        "get_time", "city", "Get the local time of a city", _city,
        ("What time is it in {v}?", "Tell me the time in {v}."),
        _json("time", lambda r: f"{r.randint(0, 23)}:{r.randint(10, 59)}", quoted=True),
        "It is {t} in {v}.",
    ),
    Tool(
        "get_order", "number", "Get the state of an order", lambda r: str(r.randint(100, 99999)),
        ("Where is order {v}?", "What is the state of order {v}?"),
        _json("state", lambda r: r.choice(("sent", "lost", "ready", "paid", "new")), quoted=True),
        "Order {v} is {t}.", number=True,
    ),
)  # fmt: skip


def schema(tool: Tool, name: str) -> str:
    """The JSON of one function, as the chat encoding prints it."""
    kind = "integer" if tool.number else "string"
    return json.dumps(
        {
            "name": name,
            "description": tool.description,
            "parameters": {
                "type": "object",
                "properties": {tool.parameter: {"type": kind}},
                "required": [tool.parameter],
            },
        }
    )


def invoke(tool: Tool, name: str, argument: str) -> str:
    """One call inside a block."""
    text = "false" if tool.number else "true"
    return (
        f'<{DSML}invoke name="{name}">\n<{DSML}parameter name="{tool.parameter}" string="{text}">'
        f"{argument}</{DSML}parameter>\n</{DSML}invoke>"
    )


def block(calls: list[str]) -> str:
    """A call block, without what separates it from the text before."""
    return f"<{DSML}tool_calls>\n" + "\n".join(calls) + f"\n</{DSML}tool_calls>"


def add_section(conversation: Conversation, rng: Rng) -> tuple[bool, list[tuple[Tool, str]]]:
    """Write the tool section into the system text; returns (V4 layout, [(tool, its name)])."""
    offered = rng.sample(TOOLS, rng.randint(1, 4))
    named = [
        (t, t.name if rng.random() < 0.6 else f"{t.name}_{rng.choice(words('nouns'))}")
        for t in offered
    ]
    schemas = "\n".join(schema(tool, name) for tool, name in named)
    text = conversation.system.strip() or rng.choice(("", "", "You are a helpful assistant."))
    v4 = rng.random() < 0.35
    if v4:
        conversation.system = f"{text}{V4_HEADER}{schemas}\n"
    else:
        conversation.system = f"{text}\n\n## Tools\n{schemas}" if text else f"## Tools\n{schemas}"
    conversation.has_tools = True
    return v4, named


def make(rng: Rng, budget: int) -> Conversation:
    """One or two questions that need a tool, with documents in between."""
    conversation = Conversation()
    v4, named = add_section(conversation, rng)
    if budget > 700 and rng.random() < 0.7:
        conversation.user(Document(opening(rng)))
        conversation.answer(rng.choice(ACKNOWLEDGEMENTS), SOFT)
    for _ in range(2 if budget > 700 and rng.random() < 0.4 else 1):
        tool, name = rng.choice(named)
        _use(conversation, rng, tool, name, v4=v4)
        if budget > 1200 and rng.random() < 0.4:
            conversation.user(Document(opening(rng)))
            conversation.answer(rng.choice(ACKNOWLEDGEMENTS), SOFT)
    return conversation


def _use(conversation: Conversation, rng: Rng, tool: Tool, name: str, *, v4: bool) -> None:
    arguments = [tool.argument(rng) for _ in range(2 if rng.random() < 0.12 else 1)]
    question = rng.choice(tool.questions)
    conversation.user(" ".join(question.format(v=v) for v in arguments))
    said = rng.choice(_BEFORE_CALL)
    lead = "\n\n" if said or v4 else ""
    calls = block([invoke(tool, name, argument) for argument in arguments])
    why = thinking.calling(rng, name, " and ".join(arguments))
    parts = [(said, SOFT)] if said else []
    conversation.answer([*parts, (lead + calls, 255)], reasoning=why)
    results = [tool.run(rng) for _ in arguments]
    conversation.user("\n\n".join(f"{RESULT}{raw}{END_RESULT}" for raw, _ in results))
    answers = [
        tool.answer.format(t=found, v=argument)
        for (_, found), argument in zip(results, arguments, strict=True)
    ]
    why = thinking.found(rng, f"result of {name}", ", ".join(found for _, found in results))
    conversation.answer(" ".join(answers), reasoning=why)
