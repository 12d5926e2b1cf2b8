"""Evaluation prompts: held-out entities, names and wording; each item one answer to be given exactly."""

import random
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
from engine.nano.families.recall import UNSEEN_QUESTIONS, UNSEEN_STATEMENTS, Fact
from engine.nano.filler import GRASS
from engine.nano.names import Rng, digits, entity
from engine.nano.render import render
from engine.nano.tokens import Encoder
from engine.nano.vocabulary import words

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
OPENING = "Read these notes.\n"
LINES = "Line {i}: {s}"
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


def unseen_wording(tokens: int) -> Maker:
    """A needle in statements and questions that training never saw."""

    def make(rng: Rng, encoder: Encoder) -> list[Item]:
        fact = Fact("secret code", entity(rng, held_out=True), digits(rng, 5))
        planted = [(rng.random(), fact.say(rng.choice(UNSEEN_STATEMENTS)))]
        conversation = Conversation()
        question = fact.say(rng.choice(UNSEEN_QUESTIONS)) + CODE_ONLY
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


def in_section(tokens: int, count: int) -> Maker:
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
        document = Document(OPENING, planted, headings=headings, line_format="{s}")
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
    rng = random.Random(seed)
    out: list[Item] = []
    for _ in range(20 * count):
        out += maker(rng, encoder)
        if len(out) >= count:
            return out[:count]
    raise ValueError(f"evaluation set {seed}: {len(out)} of {count} items fit their length")


def catalogue() -> dict[tuple[str, int], tuple[Maker, int]]:
    """Every set of the card: (name, tokens) -> (maker, items)."""
    sets: dict[tuple[str, int], tuple[Maker, int]] = {}
    for tokens in LENGTHS:
        for depth in DEPTHS:
            sets[f"needle {depth}", tokens] = (needle(tokens, depth), 60)
    for tokens in (128, 192, 384, 768, 1536, 3072):
        sets["needle 0.0", tokens] = (needle(tokens, 0.0), 20)
    for depth in (0.0, 0.5, 1.0):
        sets[f"needle {depth}", 16384] = (needle(16384, depth), 20)
    for tokens in LENGTHS[1:]:
        sets["16 needles", tokens] = (needle(tokens, None, 16), 60)
        sets["8 sections", tokens] = (in_section(tokens, min(8, tokens // 128)), 60)
        sets["RULER single_1", tokens] = (ruler_noise(tokens), 40)
        sets["RULER multikey_2", tokens] = (ruler_needles(tokens), 40)
        sets["unseen wording", tokens] = (unseen_wording(tokens), 40)
    for tokens in LENGTHS[3:]:
        sets["64 pairs", tokens] = (key_values(tokens, 64, "two"), 60)
    for tokens in LENGTHS[4:]:
        sets["128 pairs", tokens] = (key_values(tokens, 128, "two"), 60)
    for kind, tokens in (("echo", 256), ("page", 256), ("cat", 256), ("cat", 2048), ("fact", 4096)):
        sets[f"names: {kind}", tokens] = (named(kind, tokens), 100)
    for name in TASKS:
        for tokens in (256, 1024, 4096):
            if (name, tokens) != ("tools", 256):
                sets[f"task: {name}", tokens] = (task(name, tokens), 120)
    sets["task: tools", 512] = (task("tools", 512), 120)
    for tokens in (256, 1024, 4096):
        sets["lists, whole", tokens] = (whole_list(tokens), 60)
        sets["lists, the end", tokens] = (list_ends(tokens), 60)
    for tokens in (1024, 4096):
        sets["8 needles", tokens] = (needle(tokens, None, 8), 30)
        sets["4 sections", tokens] = (in_section(tokens, 4), 30)
    return sets
