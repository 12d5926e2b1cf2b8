"""Evaluation prompts of held-out entities, names and wording; each asks for one exact answer."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.nano.chat import ANSWER, SOFT, Conversation, Document
from engine.nano.families import (
    echo,
    lists,
    pages,
    pairs,
    passkey,
    ruler,
    sections,
    talk,
    tools,
    turns,
)
from engine.nano.families.wording import (
    APPOSITION,
    CORRECTION,
    DIALOGUE,
    FIELDS,
    NOTES,
    PASSIVE,
    PLAIN,
    UNSEEN_FORMS,
    UNSEEN_QUESTIONS,
    UNSEEN_STATEMENTS,
    VALUE_FIRST,
    Fact,
    tell,
)
from engine.nano.filler import GRASS
from engine.nano.names import Rng, digits, entity, seeded
from engine.nano.render import render
from engine.nano.tokens import Encoder
from engine.nano.vocabulary import words

OPENING = "Read these notes.\n"
LINES = "Line {i}: {s}"
USUAL_QUESTION = "What is the {a} for {e}?"
CODE_ONLY = " Answer with the code only."
_EOS_ID = 1
TASKS: dict[str, Callable[[Rng, int], Conversation]] = {
    "turns": turns.make,
    "pages": lambda rng, budget: pages.make(rng, budget, held_out=True),
    "tools": tools.make,
    "passkey": passkey.make,
    "talk": talk.make,
    "echo": echo.make,
}


@dataclass(frozen=True, slots=True)
class Item:
    """Token ids, and the range [start, end) that must come out of the model, token by token."""

    ids: list[int]
    start: int
    end: int


Maker = Callable[[Rng, Encoder], list[Item]]


def _single(conversation: Conversation, encoder: Encoder, rng: Rng, tokens: int) -> list[Item]:
    """The items of a conversation's ANSWER parts; none when it does not fit."""
    row = render(conversation, encoder, rng, tokens)
    return [] if row is None else spans(row[0], row[1], ANSWER)


def spans(ids: list[int], weights: list[int], at_least: int) -> list[Item]:
    """The maximal runs of tokens with at least that loss weight."""
    out, at = [], 0
    while at < len(ids):
        end = at
        while end < len(ids) and weights[end] >= at_least:
            end += 1
        if end > at:
            out.append(Item(ids, at, end))
        at = max(end, at + 1)
    return out


def needle(tokens: int, depth: float | None, count: int = 1) -> Maker:
    """`count` codes of held-out entities, one asked; the asked one at `depth`, if given."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        owners: dict[str, str] = {}
        while len(owners) < count:
            owners[entity(rng, held_out=True)] = digits(rng, 5)
        planted = [
            (rng.random(), f"The secret code for {who} is {code}.") for who, code in owners.items()
        ]
        asked = 0 if depth is not None else rng.randrange(count)
        if depth is not None:
            planted[0] = (depth, planted[0][1])
        who = list(owners)[asked]
        conversation = Conversation()
        document = Document(OPENING, planted, line_format=LINES)
        conversation.user(document, f"What is the secret code for {who}?{CODE_ONLY}")
        conversation.answer(owners[who])
        return _single(conversation, encoder, rng, tokens)

    return make


FORMS = {
    "plain": PLAIN,
    "passive": PASSIVE,
    "value first": VALUE_FIRST,
    "apposition": APPOSITION,
    "fields": FIELDS,
    "notes": NOTES,
    "dialogue": DIALOGUE,
    "correction": CORRECTION,
    "unseen sentences": UNSEEN_STATEMENTS,
    "unseen layouts": UNSEEN_FORMS,
}


def worded(tokens: int, kind: str) -> Maker:
    """A needle told in a form of that kind; unseen kinds are asked for in unseen words too."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        fact = Fact("secret code", entity(rng, held_out=True), digits(rng, 5))
        planted = [(rng.random(), tell(rng, fact, rng.choice(FORMS[kind])))]
        conversation = Conversation()
        asked = UNSEEN_QUESTIONS if kind.startswith("unseen") else (USUAL_QUESTION,)
        question = fact.say(rng.choice(asked)) + CODE_ONLY
        conversation.user(Document(OPENING, planted, line_format=LINES), question)
        conversation.answer(fact.value)
        return _single(conversation, encoder, rng, tokens)

    return make


def key_values(tokens: int, count: int, kind: str) -> Maker:
    """`count` pairs of one form in filler, one asked."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        drawn = pairs.draw_pairs(rng, count, kind, 5, grid=14)
        planted = [(rng.random(), f"The code for {k} is {v}.") for k, v in drawn.items()]
        key = rng.choice(list(drawn))
        conversation = Conversation()
        document = Document(OPENING, planted, line_format="{s}")
        conversation.user(document, f"What is the code for {key}?{CODE_ONLY}")
        conversation.answer(drawn[key])
        return _single(conversation, encoder, rng, tokens)

    return make


def in_section(tokens: int, count: int, line_format: str = "{s}") -> Maker:
    """The access code of one of `count` sections."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        names = sections.titles(rng, count)
        headings = sections.place_sections(rng, names, "## {t}")
        starts = [depth for depth, _ in headings] + [1.0]
        codes = {name: digits(rng, 5) for name in names}
        planted = [
            (start + rng.uniform(0.3, 0.9) * (end - start), f"The access code is {codes[name]}.")
            for name, start, end in zip(names, starts, starts[1:], strict=False)
        ]
        asked = rng.choice(names)
        conversation = Conversation()
        document = Document(OPENING, planted, headings=headings, line_format=line_format)
        conversation.user(document, f"What is the access code in {asked}?{CODE_ONLY}")
        conversation.answer(codes[asked])
        return _single(conversation, encoder, rng, tokens)

    return make


def ruler_noise(tokens: int) -> Maker:
    """niah_single_1 with a key of no list."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        key, value = ruler.key(rng, held_out=True), digits(rng, 7)
        planted = [(rng.random(), ruler.NEEDLE.format(k=key, v=value))]
        document = Document(ruler.OPENING, planted, line_format="{s}", filler=GRASS)
        return _ruler(rng, encoder, tokens, document, key, value)

    return make


def ruler_needles(tokens: int) -> Maker:
    """niah_multikey_2 with keys of no list."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        document, drawn = ruler.needles(rng, tokens - 120, held_out=True)
        key = rng.choice(list(drawn))
        return _ruler(rng, encoder, tokens, document, key, drawn[key])

    return make


def _ruler(
    rng: Rng, encoder: Encoder, tokens: int, document: Document, key: str, value: str
) -> list[Item]:
    conversation = Conversation()
    conversation.user(document, ruler.QUESTION.format(k=key) + ruler.PREFIX.format(k=key))
    conversation.answer(value)
    return _single(conversation, encoder, rng, tokens)


def named(kind: str, tokens: int) -> Maker:
    """A real name that no word list of training holds: repeated, told, owned, on a page."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        name = rng.choice(words("names_held_out"))
        conversation = Conversation()
        if kind == "echo":
            conversation.user("Repeat exactly: " + name)
            conversation.answer(name)
        elif kind == "page":
            conversation.user(f"Write a {name} html page")
            conversation.answer(pages.page(name))
        elif kind == "cat":
            conversation.user(f"My cat is called {name}.")
            conversation.answer("OK.", SOFT)
            conversation.user(Document(OPENING, line_format=LINES))
            conversation.answer("Noted.", SOFT)
            conversation.user("What is my cat called?")
            conversation.answer(f"Your cat is called {name}.")
        else:
            fact = Fact("vault password", name, digits(rng, 5))
            planted = [(rng.random(), fact.say("The {a} for {e} is {v}."))]
            conversation.user(
                Document("", planted, line_format=LINES), fact.say("What is the {a} for {e}?")
            )
            conversation.answer(fact.say("The {a} for {e} is {v}."))
        return _single(conversation, encoder, rng, tokens)

    return make


def task(name: str, tokens: int) -> Maker:
    """Every answer of one conversation of a task family."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        items = _single(TASKS[name](rng, tokens), encoder, rng, tokens)
        # an answer that was cut has no right last token
        return [item for item in items if item.ids[item.end - 1] == _EOS_ID][:4]

    return make


def whole_list(tokens: int) -> Maker:
    """A whole list, or the rest of one that was cut, to its end."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        row = render(lists.make(rng, tokens), encoder, rng, tokens)
        return [] if row is None else spans(row[0], row[1], SOFT)[-1:]

    return make


def list_ends(tokens: int) -> Maker:
    """Only the end of a list and the line ends before it: does it stop at N, and not before?"""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        row = render(lists.make(rng, tokens), encoder, rng, tokens)
        return [] if row is None else spans(row[0], row[1], ANSWER)[-1:]

    return make


def build(maker: Maker, encoder: Encoder, count: int, seed: str) -> list[Item]:
    """`count` items or a few more, seeded."""
    rng = seeded(seed)
    out: list[Item] = []
    for _ in range(20 * count):
        out += maker(rng, encoder)
        if len(out) >= count:
            return out[:count]
    raise ValueError(f"evaluation set {seed}: {len(out)} of {count} items fit their length")
