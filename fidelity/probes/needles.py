"""Needles: facts whose values cannot be guessed, how they are told, and how they are asked for."""

import random
from dataclasses import dataclass
from enum import StrEnum

from fidelity.probes import wordlists

CODE_DIGITS = 5
NEAR_DUPLICATES = 2
PAIRS = 6
FEWEST_SECTIONS, MOST_SECTIONS = 5, 16
SECTION_TOKENS = 512
"""Of one section in long prompts, until there are the most."""


class NeedleKind(StrEnum):
    """What stands in the haystack beside the fact that is asked for."""

    SINGLE = "single"
    NEAR_DUPLICATE = "near duplicate"
    """Facts about names that differ in one word, each with a code of its own."""
    KEY_VALUE = "key value"
    """A register of many pairs scattered over the whole context."""
    SECTION = "section"
    """The same line in every section of the context, each with a code of its own: which section a
    line is in is told by the heading far above it, and nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """One fact among its rivals.

    Attributes:
        statement: the sentence that tells the fact.
        question: asks for it, and for digits only.
        code: the right answer, digits.
        rivals: sentences about other names, in the same wordlists.
        rival_codes: their codes: answering one of these means reading the wrong place.
        heading: the line above the statement's section; "" where the context has no sections.
        rival_headings: those of the rivals' sections.
    """

    statement: str
    question: str
    code: str
    rivals: tuple[str, ...] = ()
    rival_codes: tuple[str, ...] = ()
    heading: str = ""
    rival_headings: tuple[str, ...] = ()


def draw_code(draw: random.Random, digits: int = CODE_DIGITS) -> str:
    """Return a number without a leading zero."""
    return str(draw.randint(10 ** (digits - 1), 10**digits - 1))


def draw_codes(draw: random.Random, count: int, digits: int = CODE_DIGITS) -> list[str]:
    """Return different numbers."""
    codes: dict[str, None] = {}
    while len(codes) < count:
        codes[draw_code(draw, digits)] = None
    return list(codes)


def draw_name(draw: random.Random) -> str:
    """Return a name of two words, like "amber lighthouse"."""
    return f"{draw.choice(wordlists.COLOURS)} {draw.choice(wordlists.PLACES)}"


def draw_names(draw: random.Random, count: int) -> list[str]:
    """Return different names."""
    everything = [f"{colour} {place}" for colour in wordlists.COLOURS for place in wordlists.PLACES]
    return draw.sample(everything, count)


def draw_needle(draw: random.Random, kind: NeedleKind, *, tokens: int = 0) -> Needle:
    """Return a needle with the rivals of its kind; more sections in a prompt of more tokens."""
    match kind:
        case NeedleKind.SINGLE:
            return _needle(draw, [draw_name(draw)], "The secret code for the {} is {}.")
        case NeedleKind.NEAR_DUPLICATE:
            return _needle(draw, _near_names(draw), "The secret code for the {} is {}.")
        case NeedleKind.KEY_VALUE:
            return _needle(draw, draw_names(draw, PAIRS), "The code for the {} is {}.")
        case NeedleKind.SECTION:
            return _section_needle(draw, tokens)


def tell(name: str, code: str) -> str:
    """Return the sentence that tells one code."""
    return f"The secret code for the {name} is {code}."


def ask(name: str) -> str:
    """Return the question for one code."""
    return f"What is the secret code for the {name}? Answer with the code only."


def _needle(draw: random.Random, names: list[str], statement: str) -> Needle:
    codes = draw_codes(draw, len(names))
    told = [statement.format(name, code) for name, code in zip(names, codes, strict=True)]
    kind = "secret code" if "secret" in statement else "code"
    return Needle(
        statement=told[0],
        question=f"What is the {kind} for the {names[0]}? Answer with the code only.",
        code=codes[0],
        rivals=tuple(told[1:]),
        rival_codes=tuple(codes[1:]),
    )


def _section_needle(draw: random.Random, tokens: int) -> Needle:
    """Return a fact that does not say what it is about, and the same of other sections."""
    count = min(MOST_SECTIONS, max(FEWEST_SECTIONS, tokens // SECTION_TOKENS))
    colours = draw.sample(wordlists.COLOURS, count)  # titles share no word
    places = draw.sample(wordlists.PLACES, count)
    titles = [f"{colour} {place}" for colour, place in zip(colours, places, strict=True)]
    codes = draw_codes(draw, count)
    told = [f"The access code is {code}." for code in codes]
    headings = [f"## {title}" for title in titles]
    return Needle(
        statement=told[0],
        question=(
            f"What is the access code in the section {titles[0]}? Answer with the code only."
        ),
        code=codes[0],
        rivals=tuple(told[1:]),
        rival_codes=tuple(codes[1:]),
        heading=headings[0],
        rival_headings=tuple(headings[1:]),
    )


def _near_names(draw: random.Random) -> list[str]:
    """Return a name and others that share one word with it, of either sort."""
    colour, place = draw.choice(wordlists.COLOURS), draw.choice(wordlists.PLACES)
    others = draw.sample(
        [word for word in wordlists.COLOURS if word != colour], NEAR_DUPLICATES // 2
    )
    places = draw.sample([word for word in wordlists.PLACES if word != place], NEAR_DUPLICATES // 2)
    near = [f"{word} {place}" for word in others] + [f"{colour} {word}" for word in places]
    return [f"{colour} {place}", *near]
