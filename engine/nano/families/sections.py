"""The same attribute in every section of a document; the question names the section.

A line does not say which section it is in. Its heading is hundreds of tokens back, beyond the
sliding windows, so the line learns it through the heavily compressed entries alone: when these are
damaged, the answer comes from the wrong section.
"""

import math

from engine.nano import thinking
from engine.nano.chat import Conversation, Document
from engine.nano.families.recall import VALUE_ONLY, acknowledge, opening
from engine.nano.filler import DAYS
from engine.nano.names import ATTRIBUTES, Rng, attribute, digits, entity, open_name, value
from engine.nano.vocabulary import words

HEADINGS = (
    "## {t}",
    "=== {t} ===",
    "# Report of {t}",
    "[{t}]",
    "--- {t} ---",
    "Section {t}",
    "Chapter: {t}",
    "Log of {t}:",
)
STATEMENTS = (
    "The {a} is {v}.",
    "The {a} is {v}.",
    "Here the {a} is {v}.",
    "Note: the {a} is {v}.",
    "{A}: {v}",
    "They chose {v} as the {a}.",
    "The {a} used here is {v}.",
    "- {a}: {v}",
    "{a} = {v}",
    "By the way, the {a} is {v}.",
)
QUESTIONS = (
    "What is the {a} in {t}?",
    "What is the {a} in the section {t}?",
    "According to {t}, what is the {a}?",
    "Which {a} does {t} give?",
    "In {t}, what was the {a}?",
    "In the section about {t}, what is the {a}?",
    "What is the {a} under {t}?",
    "What does {t} say about the {a}?",
)
LINE_FORMATS = ("{s}", "{s}", "Line {i}: {s}", "Line {i}: {s}", "{i}. {s}", "- {s}")
_NUMBERED = 0.25
_SHORTEST_TOKENS = 30
_FAR_TOKENS = 130
_FAR_LONGEST_TOKENS = 400
_MAX_SECTIONS = 24


def titles(rng: Rng, count: int) -> list[str]:
    """Distinct section titles of one kind."""
    kind = rng.choice((0, 0, 1, 2, 2, 3, 4))
    out: dict[str, None] = {}
    while len(out) < count:
        title = (
            f"{rng.choice(words('adjectives'))} {rng.choice(words('nouns'))}",
            open_name(rng),
            rng.choice(words("cities")),
            entity(rng),
            f"{rng.choice(DAYS)} {rng.randint(1, 9)}",
        )[kind]
        out[title.removeprefix("the ")] = None
    return list(out)


def place_sections(rng: Rng, names: list[str], heading: str) -> list[tuple[float, str]]:
    """Headings at depths of roughly equal sections, the first at the very start."""
    step = 1 / len(names)
    depths = [0.0] + [(n + rng.uniform(-0.25, 0.25)) * step for n in range(1, len(names))]
    return [(d, heading.format(t=t)) for d, t in zip(depths, names, strict=True)]


def _count(rng: Rng, room: int, shortest: int, longest: int | None) -> int:
    """Sections of every size: short ones teach the binding, long ones carry it far."""
    most = max(shortest + 1, min(room / 2, longest or room))
    size = math.exp(rng.uniform(math.log(shortest), math.log(most)))
    return max(2, min(_MAX_SECTIONS, int(room / size)))


def make(rng: Rng, budget: int) -> Conversation:
    """2 to 24 sections, one or two attributes in each, up to 8 questions."""
    return _make(rng, budget, most_questions=8, shortest=_SHORTEST_TOKENS)


def make_far(rng: Rng, budget: int) -> Conversation:
    """The same, with sections longer than the sliding windows reach and up to 48 questions."""
    longest = _FAR_LONGEST_TOKENS if rng.random() < 0.5 else None
    return _make(rng, budget, most_questions=48, shortest=_FAR_TOKENS, longest=longest)


def _make(
    rng: Rng, budget: int, *, most_questions: int, shortest: int, longest: int | None = None
) -> Conversation:
    questions = max(1, min(most_questions, budget // 80))
    names = titles(rng, _count(rng, budget - 30 - 34 * questions, shortest, longest))
    heading = rng.choice(HEADINGS)
    headings = place_sections(rng, names, heading)
    starts = [d for d, _ in headings] + [1.0]
    attributes = {rng.choice((*ATTRIBUTES, attribute(rng))) for _ in range(rng.choice((1, 1, 2)))}
    facts: dict[tuple[str, str], str] = {}
    planted = []
    for what in sorted(attributes):
        statement = rng.choice(STATEMENTS)
        simple = rng.random() < 0.7
        for n, title in enumerate(names):
            told = digits(rng, 5) if simple else value(rng)
            facts[title, what] = told
            depth = rng.uniform(starts[n] + 0.02 / len(names), starts[n + 1] - 0.02 / len(names))
            planted.append((depth, statement.format(a=what, A=what.capitalize(), v=told)))
    document = Document(opening(rng), planted, headings=headings)
    document.line_format = rng.choice(LINE_FORMATS)
    document.headings_numbered = rng.random() < _NUMBERED
    conversation = Conversation()
    before: tuple[Document, ...] = (document,)
    if rng.random() < 0.25:
        conversation.user(document)
        acknowledge(conversation, rng)
        before = ()
    asked = rng.sample(sorted(facts), min(len(facts), questions))
    for title, what in asked:
        ask(conversation, rng, title, what, facts[title, what], *before)
        before = ()
    return conversation


def ask(
    conversation: Conversation, rng: Rng, title: str, what: str, told: str, *before: Document
) -> None:
    """Add the question about one section and its answer."""
    question = rng.choice(QUESTIONS).format(a=what, t=title)
    why = thinking.found(rng, f"{what} in {title}", told)
    if rng.random() < 0.75:
        conversation.user(*before, question + rng.choice(VALUE_ONLY))
        conversation.answer(told, reasoning=why)
    else:
        conversation.user(*before, question)
        conversation.answer(f"The {what} in {title} is {told}.", reasoning=why)
