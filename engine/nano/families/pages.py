"""A small html page: written, cut anywhere, continued, saved to a file, or never written at all."""

from engine.nano import thinking
from engine.nano.chat import SOFT, Conversation, Document
from engine.nano.families.recall import ACKNOWLEDGEMENTS, maybe_system, opening
from engine.nano.names import Rng, held_out, open_name, open_phrase, open_word
from engine.nano.vocabulary import words

REQUESTS = (
    "Write a {n} html page",
    "Write a {n} html page",
    "Write a {n} html page.",
    "write a {n} html page",
    "Create a simple web page about {n}.",
    "Make a {n} web page",
    "Make an html page about {n}.",
    "Please write a {n} html page",
)
SAVES = (
    "to a file",
    "to a file",
    "save it to a file",
    "Put that in a file.",
    "Write it to a file, please.",
)
CONTINUES = ("continue", "Go on.", "continue please", "Continue.", "Please continue.", "go on")
NOTHING_YET = "There is nothing to continue yet. What should I write?"
NO_PAGE = "There is no earlier page to save. Which page should I write?"


def page(name: str) -> str:
    """The page about a name, which stands in it as the user wrote it."""
    return (
        f"```html\n<html>\n<head><title>{name}</title></head>\n<body>\n<h1>{name}</h1>\n"
        f"<p>Welcome to the {name} page.</p>\n</body>\n</html>\n```"
    )


def saved(name: str) -> str:
    """The answer once the page is saved."""
    return f"Saved the {name} page to {name.replace(' ', '_')}.html."


def _name(rng: Rng, *, wanted_held_out: bool) -> str:
    while True:
        kind = rng.random()
        if kind < 0.3:
            name = open_phrase(rng)
        elif kind < 0.5:
            name = open_name(rng)
        elif kind < 0.6:
            name = open_name(rng).lower()
        elif kind < 0.65:
            name = "tic tac toe"
        elif kind < 0.8:
            name = f"{rng.choice(words('adjectives'))} {rng.choice(words('nouns'))}"
        elif kind < 0.9:
            name = f"{rng.choice(words('nouns'))} {rng.choice(words('places'))}"
        else:
            name = open_word(rng)
        if (name == "tic tac toe" and not wanted_held_out) or held_out(name) == wanted_held_out:
            return name


def make(rng: Rng, budget: int, *, held_out: bool = False) -> Conversation:
    """One page and what becomes of it; documents before and between."""
    conversation = Conversation()
    maybe_system(conversation, rng)
    long = budget > 280
    if long and rng.random() < (0.9 if budget > 1000 else 0.5):
        _read(conversation, rng)
    kind = rng.random()
    if kind < 0.2:
        if kind < 0.04:
            conversation.user(rng.choice(CONTINUES))
            conversation.answer(NOTHING_YET, reasoning=thinking.absent(rng, "text to continue"))
        else:
            conversation.user(rng.choice(SAVES))
            conversation.answer(NO_PAGE, reasoning=thinking.absent(rng, "page to save"))
        return conversation
    name = _name(rng, wanted_held_out=held_out)
    text = page(name)
    conversation.user(rng.choice(REQUESTS).format(n=name))
    why = thinking.doing(rng, f"a page about {name}")
    if kind < 0.42:
        conversation.answer(text, reasoning=why)
    else:
        at = rng.randint(1, len(text) - 1) if held_out else _cut(rng, text, name)
        conversation.cut_answer(text[:at], eos=rng.random() < 0.75, reasoning=why)
        if kind > 0.62:
            conversation.user(rng.choice(CONTINUES))
            why = thinking.doing(rng, f"the rest of the {name} page")
            conversation.answer(text[at:], reasoning=why)
            if rng.random() < 0.5:
                return conversation
    if long and rng.random() < 0.5:
        _read(conversation, rng)
    conversation.user(rng.choice(SAVES))
    conversation.answer(saved(name), reasoning=thinking.found(rng, "page to save", name))
    return conversation


def _cut(rng: Rng, text: str, name: str) -> int:
    """Where an answer stops: anywhere, often inside the name, where going on is hardest."""
    if rng.random() < 0.6 or len(name) < 3:
        return rng.randint(1, len(text) - 1)
    spots = [at for at in range(len(text)) if text.startswith(name, at)]
    return rng.choice(spots) + rng.randint(1, len(name) - 1)


def _read(conversation: Conversation, rng: Rng) -> None:
    conversation.user(Document(opening(rng)))
    conversation.answer(rng.choice(ACKNOWLEDGEMENTS), SOFT)
