"""A register of facts: dense enough that every page of a prompt holds one of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from fidelity.probes import needles, wordlists
from fidelity.probes.dialogue import READ, assistant, user
from fidelity.probes.filler import filler_of, numbered

MOST_FACTS = min(len(wordlists.COLOURS), len(wordlists.PLACES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """Facts told in one message, acknowledged, to be asked for one by one.

    `messages` end with the acknowledgement; `questions` and `codes` are in the order of telling.
    """

    messages: tuple[dict[str, Any], ...]
    questions: tuple[str, ...]
    codes: tuple[str, ...]


def register(*, seed: str, facts: int, lines_between: int, salt: str = "") -> Register:
    """Return a register; no two of its names share a word.

    Args:
        seed: of names, codes and filler.
        facts: at most `MOST_FACTS`.
        lines_between: lines of filler before each fact.
        salt: changes the first line and nothing else, so that no prefix is shared.
    """
    draw = random.Random(f"register {seed}")  # noqa: S311 - prompts, not secrets
    colours, places = draw.sample(wordlists.COLOURS, facts), draw.sample(wordlists.PLACES, facts)
    names = [f"{colour} {place}" for colour, place in zip(colours, places, strict=True)]
    codes = needles.draw_codes(draw, facts)
    filler = filler_of(f"register {seed}").sentences(facts * lines_between)
    lines: list[str] = []
    for index, (name, code) in enumerate(zip(names, codes, strict=True)):
        lines += filler[index * lines_between : (index + 1) * lines_between]
        lines.append(needles.tell(name, code))
    book = f"Log book {_number(seed, salt)}.\n"
    return Register(
        messages=(user(f"{READ}{book}{numbered(lines)}"), assistant("I have read it.")),
        questions=tuple(needles.ask(name) for name in names),
        codes=tuple(codes),
    )


def _number(seed: str, salt: str) -> int:
    return random.Random(f"book {seed} {salt}").randint(1_000, 9_999)  # noqa: S311
