"""One or a few facts without an owner: a pass key, a magic number, the code to the vault."""

from engine.nano import thinking
from engine.nano.chat import Conversation, Document
from engine.nano.families.recall import VALUE_ONLY, acknowledge, opening
from engine.nano.names import Rng, attribute, value
from engine.nano.vocabulary import words

STATEMENTS = (
    "The {a} is {v}.",
    "The {a} is {v}. Remember it. {v} is the {a}.",
    "Important: the {a} is {v}.",
    "Please remember this: the {a} is {v}.",
    "The {a} today is {v}.",
    "Here is the {a}: {v}.",
    "{A}: {v}",
    "{v} is the {a}.",
    "Use {v} as the {a}.",
    "They changed the {a} to {v}.",
    "{a} = {v}",
    '"{a}": "{v}",',
    "Please note the {a}, which is {v}.",
    "The {a} was set to {v}.",
)
QUESTIONS = (
    "What is the {a}?",
    "What is the {a}?",
    "Tell me the {a}.",
    "What was the {a}?",
    "What is the {a} in the text above?",
    "Find the {a}.",
    "Which {a} was given?",
    "I need the {a}.",
    "Please repeat the {a}.",
    "Do you remember the {a}?",
    "Which {a} do the notes give?",
)
_HUNT = "There is important info hidden inside a lot of irrelevant text. Find it and memorize it.\n"


def make(rng: Rng, budget: int) -> Conversation:
    """One to three facts, one to three questions."""
    del budget
    named = {unowned(rng): value(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))}
    planted = [
        (rng.random(), rng.choice(STATEMENTS).format(a=a, A=a.capitalize(), v=v))
        for a, v in named.items()
    ]
    document = Document(_HUNT if rng.random() < 0.2 else opening(rng), planted)
    conversation = Conversation()
    before: tuple[Document, ...] = (document,)
    if rng.random() < 0.25:
        conversation.user(document)
        acknowledge(conversation, rng)
        before = ()
    asked = rng.sample(list(named), rng.randint(1, len(named)))
    for what in asked:
        question, why = (
            rng.choice(QUESTIONS).format(a=what),
            thinking.found(rng, what, named[what]),
        )
        if rng.random() < 0.65:
            conversation.user(*before, question + rng.choice(VALUE_ONLY))
            conversation.answer(named[what], reasoning=why)
        else:
            conversation.user(*before, question)
            conversation.answer(f"The {what} is {named[what]}.", reasoning=why)
        before = ()
    return conversation


def unowned(rng: Rng) -> str:
    """What can be told without saying whose it is."""
    kind = rng.random()
    if kind < 0.15:
        return "pass key"
    if kind < 0.3:
        place = rng.choice(("vault", "safe", "door", *words("places")))
        return f"secret code to the {place}"
    return "magic number" if kind < 0.45 else attribute(rng)
