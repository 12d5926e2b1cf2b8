"""Filler: distinct lines of plausible English, so that attention has something to choose from.

Repeated filler makes degenerate attention; it is kept as a contrast only.
"""

import random
from collections.abc import Iterator
from functools import lru_cache

from fidelity.probes import wordlists as lists

_SENTENCES = (
    "The {person} {did} {count} {goods} at the {site}.",
    "On {day} a {quality} {thing} at the {site} was {event}.",
    "The ship from {city} brought {count} {goods}.",
    "Train {number} to {city} left at {hour}:{minute}.",
    "A {person} from {city} asked for a {quality} {thing}.",
    "The {thing} behind the {site} is {quality} and {quality}.",
    "The {site} paid {number} crowns for {goods}.",
    "Nobody at the {site} {did} the {quality} {thing}.",
    "The {person} met a {person} near the {site}.",
    "Rain fell on {city} for {hour} hours on {day}.",
)
_CHOICES = {
    "person": lists.PEOPLE,
    "did": lists.ACTIONS,
    "goods": lists.GOODS,
    "site": lists.SITES,
    "day": lists.DAYS,
    "quality": lists.QUALITIES,
    "thing": lists.THINGS,
    "event": lists.EVENTS,
    "city": lists.CITIES,
}
_RANGES = {"count": (2, 980), "number": (101, 999), "hour": (5, 22), "minute": (10, 59)}
REPEATED = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back."


class _Slots(dict[str, object]):
    """Fills each slot of a sentence afresh."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, slot: str) -> object:
        if slot in _RANGES:
            return self._draw.randint(*_RANGES[slot])
        return self._draw.choice(_CHOICES[slot])


def _distinct(draw: random.Random) -> Iterator[str]:
    seen: set[str] = set()
    slots = _Slots(draw)
    while True:
        sentence = draw.choice(_SENTENCES).format_map(slots)
        if sentence not in seen:
            seen.add(sentence)
            yield sentence


class Filler:
    """Sentences of one seed, as many as asked for; the i-th is always the same."""

    def __init__(self, seed: str) -> None:
        """Draw nothing yet."""
        self._kept: list[str] = []
        self._more = _distinct(random.Random(f"filler {seed}"))  # noqa: S311 - text, not secrets

    def sentences(self, count: int) -> list[str]:
        """Return the first `count` sentences, all different."""
        while len(self._kept) < count:
            self._kept.append(next(self._more))
        return self._kept[:count]


@lru_cache(maxsize=64)
def filler_of(seed: str) -> Filler:
    """Return the filler of a seed; kept, since a prompt is fitted in several steps."""
    return Filler(seed)


def numbered(sentences: list[str], *, first: int = 1) -> str:
    """Return the sentences as numbered lines, each with its newline."""
    return "".join(f"Line {first + i}: {sentence}\n" for i, sentence in enumerate(sentences))


def pad_words(count: int, seed: str) -> str:
    """Return `count` common short words, each one token in most vocabularies, none twice in a row.

    They bring a prompt to its exact token count. The words of a longer pad begin with those of a
    shorter one of the same seed, so that one more word is one more token.
    """
    draw = random.Random(f"pad {seed}")  # noqa: S311 - text, not secrets
    words: list[str] = []
    while len(words) < count:
        word = draw.choice(lists.PAD_WORDS)
        if not words or words[-1] != word:
            words.append(word)
    return " ".join(words)
