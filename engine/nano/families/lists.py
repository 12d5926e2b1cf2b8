"""Text of a stated number of lines, by a rule, that ends where it was told to end.

Every line carries its number, so that the model can know when to stop; line ends and the final EOS
weigh more than the text between them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.nano import thinking
from engine.nano.chat import ANSWER, SOFT, Conversation
from engine.nano.families.pages import CONTINUES
from engine.nano.families.recall import maybe_system, read_first
from engine.nano.names import Rng, open_word
from engine.nano.vocabulary import words


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind, its lines, and what stands between them."""

    requests: tuple[str, ...]
    line: Callable[[int, str], str]
    separator: str
    tokens_a_line: int


def _cycled(name: str, at: int) -> str:
    listed = words(name)
    return listed[(at - 1) % len(listed)]


KINDS = (
    Kind(
        (
            "Write {n} numbered lines about the {w}.",
            "Write {n} numbered lines about {w}.",
            "Write {n} numbered lines about the {w}",
            "Please write {n} numbered lines about the {w}.",
            "Write {n} lines about the {w}.",
        ),
        lambda i, w: f"{i}. The {_cycled('adjectives', i)} {w} counts {i} {_cycled('nouns', i)}s.",
        "\n",
        22,
    ),
    Kind(
        ("Tell me a story of {n} days about the {w}.", "Write a story of {n} days about the {w}."),
        lambda i, w: (
            f"On day {i} the {w} went to the {_cycled('places', i)} "
            f"and found a {_cycled('nouns', i)}."
        ),
        " ",
        22,
    ),
    Kind(("Count from 1 to {n}.", "Count to {n}."), lambda i, _: str(i), " ", 4),
    Kind(
        (
            "List {n} animals and things with numbers.",
            "List {n} things.",
            "Give me a list of {n} things.",
        ),
        lambda i, _: f"{i}. {_cycled('nouns', i)}",
        "\n",
        8,
    ),
    Kind(
        ("Write a table with {n} rows about the {w}.",),
        lambda i, w: f"| {i} | {w} {i} | {_cycled('colors', i)} |",
        "\n",
        16,
    ),
)
_MOST_LINES = 160


def make(rng: Rng, budget: int) -> Conversation:
    """One list, written whole or cut anywhere and continued; perhaps a document before."""
    kind = KINDS[0] if rng.random() < 0.4 else rng.choice(KINDS)
    subject = rng.choice(words("nouns")) if rng.random() < 0.6 else open_word(rng)
    most = max(3, min(_MOST_LINES, (budget - 70) // (kind.tokens_a_line + 2)))
    count = rng.randint(2, min(most, 24)) if rng.random() < 0.5 else rng.randint(2, most)
    conversation = Conversation()
    maybe_system(conversation, rng)
    read_first(conversation, rng, 0.7 if budget > 1000 else 0.2)
    conversation.user(rng.choice(kind.requests).format(n=count, w=subject))
    lines = [kind.line(i, subject) for i in range(1, count + 1)]
    why = thinking.doing(rng, f"{count} lines")
    if rng.random() < 0.45:
        conversation.answer(weighted(lines, kind.separator), reasoning=why)
        return conversation
    text = kind.separator.join(lines)
    at = rng.randint(1, len(text) - 1)
    conversation.cut_answer(text[:at], eos=rng.random() < 0.75, weight=SOFT, reasoning=why)
    conversation.user(rng.choice(CONTINUES))
    why = thinking.doing(rng, f"the rest of {count} lines")
    rest = _rest(lines, kind.separator, at)
    conversation.answer(weighted(rest, kind.separator, first=ANSWER), reasoning=why)
    return conversation


def _rest(lines: list[str], separator: str, at: int) -> list[str]:
    """The lines after the first `at` characters of their joined text; the first may be a piece."""
    for n, line in enumerate(lines):
        if at <= len(line):
            return [line[at:], *lines[n + 1 :]]
        at -= len(line) + len(separator)
    return [""]


def weighted(lines: list[str], separator: str, *, first: int = SOFT) -> list[tuple[str, int]]:
    """Parts of an answer in which what follows a line (another one, or the end) weighs most.

    first: weight of the first line, which may be the rest of one that was cut.
    """
    parts: list[tuple[str, int]] = [(lines[0], first)]
    for line in lines[1:]:
        if separator == "\n":
            parts += [("\n", ANSWER), (line, SOFT)]
        else:
            head, space, tail = line.partition(" ")
            parts += [(separator + head, ANSWER), (space + tail, SOFT)]
    return [*parts, ("", ANSWER)]
