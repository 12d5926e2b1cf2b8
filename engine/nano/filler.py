"""Text that a fact can hide in: sentences, boilerplate, lists, code-like lines, prose."""

from collections.abc import Callable

from engine.nano.names import Rng, digits, open_name, open_phrase, open_word, word
from engine.nano.vocabulary import words

Sentence = Callable[[Rng], str]

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
GRASS = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
OPENINGS = (
    "",
    "Read these notes.\n",
    "Here is a long document.\n",
    "Below is a list of lines.\n",
    "Please read the following text carefully.\n",
    "Document:\n",
)
LINE_FORMATS = (
    "Line {i}: {s}",
    "Line {i}: {s}",
    "{i}. {s}",
    "{i}: {s}",
    "[{i}] {s}",
    "Entry {i}: {s}",
    "Note {i} - {s}",
    "{s}",
)
_STORIES = (
    "the {a} {n} {v} {k} {m}s near the {p}.",
    "the {a} {n} {v} the {b} {m}.",
    "on {d} the {n} at the {p} {v} a {b} {m}.",
    "{N} {v} the {a} {n} in {c}.",
    "there are {k} {a} {n}s at the {p}.",
    "every {n} {v} a {m}, but the {a} {p} is {b}.",
    "shipment {k} of {a} {n}s left {c}.",
    "{N} and {M} met at the {a} {p} at {h}:{t}.",
    "the price of the {a} {n} was {k} coins.",
    "the {p} near the {n} is {a} and {b}.",
    "room {k} of the {p} holds a {a} {n}.",
    "a {a} {n} {v} the {m} beside the {b} {p}.",
)


def sentence(rng: Rng) -> str:
    """One sentence or line; kinds are mixed."""
    kind = rng.randrange(_KINDS)
    return _OTHERS[kind](rng) if kind < len(_OTHERS) else _story(rng)


def boilerplate(rng: Rng) -> Sentence:
    """One sentence for a whole document, perhaps with a changing number or word."""
    kind = rng.random()
    if kind < 0.15:
        return lambda _: GRASS
    source = word if rng.random() < 0.6 else open_word
    head, tail = _some(rng, source, 2, 6), _some(rng, source, 2, 6)
    if kind < 0.25:
        head, tail = head.capitalize(), tail.capitalize()
        return lambda _: f"{head}. {tail}. {head}."
    if kind < 0.45:
        return lambda _: f"{head} {tail}."
    if kind < 0.75:
        return lambda r: f"{head} {r.randint(1, 99999)} {tail}."
    return lambda r: f"{head} {r.choice(words('adjectives'))} {r.choice(words('nouns'))} {tail}."


def _some(rng: Rng, source: Sentence, low: int, high: int) -> str:
    return " ".join(source(rng) for _ in range(rng.randint(low, high)))


def _story(rng: Rng) -> str:
    return rng.choice(_STORIES).format(
        a=rng.choice(words("adjectives")),
        b=rng.choice(words("adjectives")),
        n=rng.choice(words("nouns")),
        m=rng.choice(words("nouns")),
        v=rng.choice(words("verbs")),
        p=rng.choice(words("places")),
        c=rng.choice(words("cities")),
        d=rng.choice(DAYS),
        k=rng.randint(2, 9999),
        h=rng.randint(0, 23),
        t=rng.randint(10, 59),
        N=open_word(rng).capitalize(),
        M=open_word(rng).capitalize(),
    )


def _code_like(rng: Rng) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return f"{open_word(rng)}({open_word(rng)}, {rng.randint(0, 999)})"
    if kind == 1:
        return f"{open_word(rng)} = {rng.randint(0, 9999)}"
    if kind == 2:
        street = rng.choice(("Street", "Road", "Lane"))
        return f"{open_name(rng)}, {rng.randint(1, 999)} {open_name(rng)} {street}"
    if kind == 3:
        return f'"{open_word(rng)}": "{open_word(rng)}",'
    if kind == 4:
        return f'{open_name(rng)} said: "{_some(rng, word, 2, 8)}."'
    return f"item number {digits(rng, 3)} of the {open_phrase(rng)}."


def _noise(rng: Rng) -> str:
    return _some(rng, word, 3, 14) + "."


def _noise_with_number(rng: Rng) -> str:
    middle = rng.choice((".", "!", "?", ", ", ": "))
    start = _some(rng, word, 2, 8).capitalize()
    return f"{start}{middle} {rng.randint(0, 99999)} {_some(rng, word, 1, 5)}."


def _open_noise(rng: Rng) -> str:
    return _some(rng, open_word, 3, 9).capitalize() + rng.choice(".....?!")


def _lorem(rng: Rng) -> str:
    return _some(rng, lambda r: r.choice(words("lorem")), 4, 12).capitalize() + "."


def _english(rng: Rng) -> str:
    return rng.choice(words("english"))


_OTHERS = (_noise, _noise_with_number, _open_noise, _lorem, _english, _code_like)
_KINDS = 3 * len(_OTHERS)  # two thirds are stories
