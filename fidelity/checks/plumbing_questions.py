"""The few questions that all plumbing checks share, so that one exchange serves many claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelity.probes.dialogue import tool, user

if TYPE_CHECKING:
    from fidelity.checks.conformance_wire import Line, Wire

COUNTING = [user("Count from 1 to 12.")]
"""Ends by itself within 48 tokens, and its text is the same each time."""
COUNTING_TOKENS = 48
COUNTING_ON = [user("Count from 1 to 30.")]
"""Goes on for more than 30 tokens."""
OPEN = [user("zq xv wy")]
"""Says nothing that has one answer: sampled texts differ."""
THOUGHTFUL = [user("What is the capital of France?")]
THINKING_TOKENS = 256
WEATHER = tool("get_weather", "Get the weather of a city", "city")
WEATHER_QUESTIONS = ("What is the weather in Paris?", "What is the weather in Oslo?")
WEATHER_TOKENS = 96
ECHOED = (
    "red-fox \U0001f600\U0001f680 end",
    "日本語",
    "naïve café",
    "Привет мир",
    "שלום",
    "中文测试",
)
"""Texts of two, three and four bytes a character, short enough for a small model to repeat."""
ECHO_TOKENS = 48


async def counting(line: Line, *, stream: bool, copy: int = 0, **options: Any) -> Wire:
    """Ask for the counting answer."""
    options.setdefault("max_tokens", COUNTING_TOKENS)
    label = f"{'stream' if stream else 'one-shot'}{', again' if copy else ''}"
    return await line.chat(
        COUNTING, label=label, stream=stream, copy=copy, temperature=0.0, **options
    )


async def weather(line: Line, *, stream: bool, question: int = 0, copy: int = 0) -> Wire:
    """Ask a question that a tool answers."""
    return await line.chat(
        [user(WEATHER_QUESTIONS[question])],
        label=f"tool question, {'stream' if stream else 'one-shot'}",
        tools=[WEATHER],
        max_tokens=WEATHER_TOKENS,
        stream=stream,
        copy=copy,
        temperature=0.0,
    )


async def thinking(
    line: Line, *, stream: bool, copy: int = 0, max_tokens: int | None = None
) -> Wire:
    """Ask with reasoning on, where the server has a switch for it."""
    switch = True if line.client.server.dialect.thinking_keys else None
    return await line.chat(
        THOUGHTFUL,
        label=f"reasoning, {'stream' if stream else 'one-shot'}",
        thinking=switch,
        max_tokens=max_tokens or THINKING_TOKENS,
        stream=stream,
        copy=copy,
        temperature=0.0,
    )


async def echo(line: Line, text: str, *, stream: bool, copy: int = 0) -> Wire:
    """Ask to repeat a text."""
    return await line.chat(
        [user(f"Repeat exactly: {text}")],
        label=f"echo {text}, {'stream' if stream else 'one-shot'}",
        max_tokens=ECHO_TOKENS,
        stream=stream,
        copy=copy,
        temperature=0.0,
    )
