"""Entities, attributes and values: closed word lists, and open names spelt letter by letter.

The held-out split: a tenth of all entities, by a checksum of their text, never occurs in training
(`entity(rng, held_out=True)` draws from it alone); `vocabulary/names_held_out.txt` is never read by
a task family.
"""

import random
import zlib
from functools import cache

from engine.nano.vocabulary import words

Rng = random.Random


def seeded(key: str) -> Rng:
    """A stream of draws of its own for every key."""
    return random.Random(key)  # noqa: S311 - data, not secrets


_VOWELS = "aaaeeeeiiioooouuy"
_CONSONANTS = "bbbccddddffgghhjkkllllmmmnnnnpprrrrssssttttvwxzq"
_PREFIXES = [
    "secret",
    "access",
    "door",
    "magic",
    "serial",
    "vault",
    "badge",
    "pin",
    "key",
    "special",
    "locker",
    "safe",
    "gate",
    "account",
    "launch",
    "network",
    "wifi",
    "backup",
    "override",
    "master",
    "login",
    "bank",
    "alarm",
    "hidden",
    "daily",
    "final",
    "server",
    "root",
    "entry",
]
_SUFFIXES = ["code", "code", "number", "number", "password", "key", "pin", "token", "id", "phrase"]
ATTRIBUTES = (
    "secret code",
    "access code",
    "door code",
    "magic number",
    "serial number",
    "vault number",
    "badge number",
    "pin code",
    "password",
    "key number",
)


def held_out(text: str) -> bool:
    """Whether an entity belongs to the tenth that training never sees."""
    return zlib.crc32(text.encode()) % 10 == 0


@cache
def _fragments() -> tuple[str, ...]:
    """Pieces of two to five letters, cut from every word list and training name."""
    lists = ("adjectives", "nouns", "verbs", "places", "cities", "lorem", "names")
    found = set()
    for word in (w.lower() for name in lists for w in words(name) if w.isalpha()):
        found |= {word[a : a + n] for n in (2, 3, 4, 5) for a in range(len(word) - n + 1)}
    return tuple(sorted(found))


def open_word(rng: Rng) -> str:
    """A lower-case word from no list: joined fragments, or free letters."""
    if rng.random() < 0.3:
        pairs = [rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 4))]
        return "".join(pairs) + (rng.choice(_CONSONANTS) if rng.random() < 0.5 else "")
    return "".join(rng.choice(_fragments()) for _ in range(rng.choice((1, 2, 2, 3, 3))))[:14]


def open_phrase(rng: Rng) -> str:
    """One to three open words, lower case."""
    return " ".join(open_word(rng) for _ in range(rng.choice((1, 1, 2, 2, 3))))


def open_name(rng: Rng) -> str:
    """A proper name that no list of the evaluation holds, in title case."""
    if rng.random() < 0.3:
        return rng.choice(words("names"))
    return open_phrase(rng).title()


def word(rng: Rng) -> str:
    """A word of any list."""
    return rng.choice(words(rng.choice(("adjectives", "nouns", "verbs", "places", "small_words"))))


def digits(rng: Rng, count: int) -> str:
    """That many digits; a leading zero is allowed."""
    return "".join(rng.choice("0123456789") for _ in range(count))


def entity(rng: Rng, *, held_out: bool = False) -> str:
    """Something that can own a secret code."""
    wanted = held_out
    while True:
        name = _entity(rng)
        if _is_held_out(name) == wanted:
            return name


_is_held_out = held_out


def _entity(rng: Rng) -> str:
    kind = rng.random()
    if kind < 0.38:
        name = open_phrase(rng)
        return rng.choice((name, name.title(), "the " + name, open_name(rng)))
    if kind < 0.65:
        return f"the {rng.choice(words('adjectives'))} {rng.choice(words('nouns'))}"
    if kind < 0.78:
        return open_word(rng).capitalize()
    if kind < 0.84:
        return rng.choice(words("cities"))
    if kind < 0.92:
        return f"unit {rng.choice('ABCDEFGHJKLMNPQRSTUVWXYZ')}-{rng.randint(10, 999)}"
    return f"the {rng.choice(words('nouns'))} at the {rng.choice(words('places'))}"


def near(rng: Rng, name: str) -> str:
    """An entity that differs from `name` in one word or one digit."""
    parts = name.split(" ")
    at = rng.randrange(len(parts))
    old = parts[at]
    figures = [i for i, c in enumerate(old) if c.isdigit()]
    if figures:
        i = rng.choice(figures)
        parts[at] = old[:i] + rng.choice("0123456789") + old[i + 1 :]
        return " ".join(parts)
    new = rng.choice((rng.choice(words("nouns")), rng.choice(words("adjectives")), open_word(rng)))
    new = new.title() if old[:1].isupper() else new
    if len(parts) == 1:
        return f"{old} {new}"
    parts[len(parts) - 1 if old == "the" else at] = new
    return " ".join(parts)


def attribute(rng: Rng) -> str:
    """What can be told of an entity."""
    kind = rng.random()
    if kind < 0.40:
        return rng.choice(ATTRIBUTES)
    if kind < 0.48:
        return "special magic number"
    if kind < 0.76:
        return f"{rng.choice(_PREFIXES)} {rng.choice(_SUFFIXES)}"
    if kind < 0.86:
        return f"{open_word(rng)} {rng.choice(_SUFFIXES)}"
    noun = rng.choice(words("nouns"))
    return rng.choice((noun, f"{rng.choice(words('adjectives'))} {noun}", f"{noun} number"))


def value(rng: Rng) -> str:
    """What an attribute is: mostly five digits, also other lengths, ids, words and names."""
    kind = rng.random()
    if kind < 0.56:
        return digits(rng, 5)
    if kind < 0.80:
        return digits(rng, rng.randint(3, 8))
    if kind < 0.85:
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"
        return "".join(rng.choice(letters) for _ in range(rng.randint(4, 8)))
    if kind < 0.90:
        parts = (word, lambda r: digits(r, 2), open_word)
        return "-".join(rng.choice(parts)(rng) for _ in range(rng.choice((2, 3, 3))))
    if kind < 0.95:
        return open_name(rng)
    name = open_word(rng)
    return name.upper() if rng.random() < 0.3 else name.capitalize()
