"""Personal facts told in turns, some of them corrected later, with other matters in between."""

from collections.abc import Callable
from functools import partial

from engine.nano import thinking
from engine.nano.chat import SOFT, Conversation, Document
from engine.nano.families.needle import facts
from engine.nano.families.recall import ask, maybe_system, opening
from engine.nano.families.tools import add_section
from engine.nano.families.wording import Fact, tell
from engine.nano.filler import DAYS
from engine.nano.names import Rng, digits, open_name, open_word, word
from engine.nano.vocabulary import words

_PEOPLE = ("cat", "dog", "sister", "brother", "boss", "teacher", "friend", "horse", "neighbour")
_UNKNOWN = 0.15
NODS = ("OK.", "Noted.", "Got it.")
_CORRECTIONS = (
    "Actually, m",
    "I have news: m",
    "Correction: m",
    "Update: m",
    "Sorry, m",
    "Wait, m",
)


def _short_name(rng: Rng) -> str:
    return open_word(rng).capitalize() if rng.random() < 0.5 else open_name(rng)


_PERSONAL: tuple[tuple[str, Callable[[Rng], str]], ...] = (
    *((person, _short_name) for person in _PEOPLE),
    ("name", _short_name),
    ("street", open_name),
    ("favourite book", open_name),
    ("favourite color", lambda r: r.choice(words("colors"))),
    ("home city", lambda r: r.choice(words("cities"))),
    ("meeting day", lambda r: r.choice(DAYS)),
    ("lucky number", lambda r: digits(r, r.randint(2, 5))),
    ("locker code", lambda r: digits(r, 4)),
    ("phone number", lambda r: digits(r, 7)),
    ("room number", lambda r: digits(r, 3)),
    ("magic number", lambda r: digits(r, r.randint(3, 6))),
    ("secret word", open_word),
    ("passphrase", lambda r: f"{word(r)}-{open_word(r)}-{digits(r, 2)}"),
    ("canary", lambda r: f"{open_word(r)}-{digits(r, 4)}"),
    ("project", lambda r: f"{r.choice(words('adjectives'))} {r.choice(words('nouns'))}"),
    ("car", lambda r: f"{r.choice(words('colors'))} {open_word(r).capitalize()}"),
)

OWN = tuple(what for what, _ in _PERSONAL if what not in _PEOPLE)

_OF_PEOPLE = (
    "My {w} is called {v}.",
    "The name of my {w} is {v}.",
    "I have a {w} called {v}.",
    "{v} is the name of my {w}.",
    "Please remember that my {w} is called {v}.",
    "By the way, my {w}'s name is {v}.",
)
OF_ONESELF = (
    "My {w} is {v}.",
    "Remember that my {w} is {v}.",
    "Please note that my {w} is {v}.",
    "By the way, my {w} is {v}.",
    "{v} is my {w}.",
    "I want you to know my {w}: {v}.",
    "As for my {w}, it is {v}.",
    "my {w} = {v}",
    "For later: my {w} is {v}.",
)
_ASKED_OF_PEOPLE = (
    "What is my {w} called?",
    "What is the name of my {w}?",
    "What is my {w}'s name?",
    "How is my {w} called?",
    "Which name does my {w} have?",
)
ASKED_OF_ONESELF = (
    "What is my {w}?",
    "What is my {w}?",
    "Do you remember my {w}?",
    "Tell me my {w}.",
    "What was my {w}?",
    "Which {w} did I tell you?",
    "What did I say about my {w}?",
    "Please repeat my {w}.",
)


def make(rng: Rng, budget: int) -> Conversation:
    """2 to 7 facts, documents in between, up to 5 questions at the end."""
    conversation = Conversation()
    maybe_system(conversation, rng)
    if rng.random() < 0.12 and budget > 420:
        add_section(conversation, rng)
    count = rng.randint(2, max(2, min(7, budget // 60)))
    personal = dict(rng.sample(_PERSONAL, count))
    told = {what: source(rng) for what, source in personal.items()}
    turns: list[Callable[[], None]] = [
        partial(_tell_own, conversation, rng, what, told[what]) for what in personal
    ]
    others: list[Fact] = []
    if rng.random() < 0.4:
        others = facts(rng, rng.randint(1, max(1, min(4, budget // 120))))
        turns += [partial(_tell_fact, conversation, rng, fact) for fact in others]
    rng.shuffle(turns)
    for _ in range(rng.randint(1, 3) if budget > 300 else 0):
        turns.insert(rng.randint(0, len(turns)), partial(_read, conversation, rng))
    for turn in turns:
        turn()
    if rng.random() < 0.3:
        _correct(conversation, rng, told, personal)
        if rng.random() < 0.5:
            _read(conversation, rng)
    asked: list[str | Fact] = [*told, *others]
    rng.shuffle(asked)
    for what in asked[: rng.randint(1, min(5, count))]:
        if isinstance(what, Fact):
            ask(conversation, rng, what)
        else:
            _ask(conversation, rng, what, told[what])
    if rng.random() < _UNKNOWN:
        _ask_untold(conversation, rng, told)
    return conversation


def _ask_untold(conversation: Conversation, rng: Rng, told: dict[str, str]) -> None:
    what = rng.choice([what for what, _ in _PERSONAL if what not in told])
    conversation.user(rng.choice(("What is my {w}?", "Tell me my {w}.")).format(w=what))
    text = f"I have not been told your {what}."
    conversation.answer(text, reasoning=thinking.absent(rng, what))


def _tell(conversation: Conversation, rng: Rng, statement: str) -> None:
    conversation.user(statement)
    conversation.answer(rng.choice(NODS), SOFT)


def _tell_own(conversation: Conversation, rng: Rng, what: str, value: str) -> None:
    _tell(conversation, rng, _statement(rng, what, value))


def _tell_fact(conversation: Conversation, rng: Rng, fact: Fact) -> None:
    _tell(conversation, rng, tell(rng, fact))


def _read(conversation: Conversation, rng: Rng) -> None:
    conversation.user(Document(opening(rng)))
    conversation.answer(rng.choice((*NODS, "I have read it.")), SOFT)


def _statement(rng: Rng, what: str, value: str) -> str:
    forms = _OF_PEOPLE if what in _PEOPLE else OF_ONESELF
    form = forms[0] if rng.random() < 0.4 else rng.choice(forms)
    return form.format(w=what, v=value)


def _correct(
    conversation: Conversation,
    rng: Rng,
    told: dict[str, str],
    personal: dict[str, Callable[[Rng], str]],
) -> None:
    """Change one or two facts; only what is said last counts."""
    for what in rng.sample(list(told), rng.randint(1, min(2, len(told)))):
        told[what] = personal[what](rng)
        verb = "is now called" if what in _PEOPLE else rng.choice(("is", "is now"))
        statement = f"{rng.choice(_CORRECTIONS)}y {what} {verb} {told[what]}."
        _tell(conversation, rng, statement)


def _ask(conversation: Conversation, rng: Rng, what: str, value: str) -> None:
    if what in _PEOPLE:
        question, answer = rng.choice(_ASKED_OF_PEOPLE), f"Your {what} is called {value}."
    else:
        question, answer = rng.choice(ASKED_OF_ONESELF), f"Your {what} is {value}."
    conversation.user(question.format(w=what))
    conversation.answer(answer, reasoning=thinking.found(rng, what, value))
