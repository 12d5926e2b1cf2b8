"""Repeat exactly: names, noise, code points of many scripts: what copying letters needs.

Some answers are cut anywhere and continued, and some words are spelt: a text that stops inside a
word goes on with other tokens than the whole word has, so the model must know their letters.
"""

from collections.abc import Callable

from engine.nano import thinking
from engine.nano.chat import Conversation
from engine.nano.families.pages import CONTINUES
from engine.nano.families.recall import read_first
from engine.nano.filler import sentence
from engine.nano.names import Rng, digits, open_name, open_phrase, open_word
from engine.nano.vocabulary import words

REQUESTS = ("Repeat exactly: ", "Repeat exactly: ", "Repeat: ", "Say this: ", "Say: ")
_SAMPLES = [
    "é",
    "ü",
    "ñ",
    "ø",
    "ß",
    "你好",
    "世界",
    "東京",
    "数据",
    "مرحبا",
    "שלום",
    "Привет",
    "мир",
    "😀",
    "🚀",
    "→",
    "≤",
    "€",
    "£",
    "©",
    "“quoted”",
    "–",
    "—",
]
# scripts by their code points, from Latin with marks to emoji
_RANGES = (
    (0xC0, 0x24F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x5D0, 0x5EA),
    (0x620, 0x64A),
    (0x904, 0x939),
    (0x3041, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F64F),
)

_ACCENTED = "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßğşšžčćłąęőűāēīōū"
SPELLING = ("Spell {w}.", "Spell the word {w}.", "How do you spell {w}?")
_SPELT, _CUT = 0.1, 0.34


def accented(rng: Rng) -> str:
    """A word in which one or two letters have marks, or are foreign."""
    letters = list(open_word(rng) if rng.random() < 0.5 else rng.choice(words("nouns")))
    for _ in range(rng.choice((1, 1, 2))):
        letters[rng.randrange(len(letters))] = rng.choice(_ACCENTED)
    text = "".join(letters)
    return text.capitalize() if rng.random() < 0.2 else text


_PARTS = (
    open_word,
    accented,
    lambda r: r.choice(words("nouns")),
    lambda r: r.choice(_SAMPLES),
    lambda r: digits(r, 3),
)


def text(rng: Rng) -> str:
    """Something to repeat."""
    return rng.choices(list(_TEXTS), weights=list(_TEXTS.values()))[0](rng)


def _named(rng: Rng) -> str:
    return rng.choice((open_name, open_phrase, open_name))(rng)


def _joined(rng: Rng, part: Callable[[Rng], str], most: int) -> str:
    return " ".join(part(rng) for _ in range(rng.randint(1, most)))


def _signs(rng: Rng) -> str:
    return "".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(3, 20)))


def code_points(rng: Rng) -> str:
    """Assigned and unassigned characters of one or several scripts."""
    ranges = _RANGES if rng.random() < 0.4 else (rng.choice(_RANGES),)
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(2, 9)))


_TEXTS: dict[Callable[[Rng], str], float] = {
    _named: 0.19,
    lambda r: _joined(r, accented, 4): 0.08,
    lambda r: _joined(r, open_word, 10): 0.07,
    lambda r: _joined(r, r.choice(_PARTS), 6): 0.04,
    lambda r: _joined(r, lambda r: r.choice(_PARTS)(r), 14): 0.14,
    _signs: 0.12,
    code_points: 0.17,
    sentence: 0.19,
}


def make(rng: Rng, budget: int) -> Conversation:
    """Exchanges until about the budget, fewer now and then."""
    conversation = Conversation()
    read_first(conversation, rng, 0.8 if budget > 1000 else 0.0)
    most = max(1, min(60, budget // 60))
    for _ in range(rng.randint(1 if rng.random() < 0.3 else most // 2 + 1, most)):
        kind = rng.random()
        if kind < _SPELT:
            _spell(conversation, rng)
        elif kind < _SPELT + _CUT:
            _cut(conversation, rng)
        else:
            said = text(rng)
            conversation.user(rng.choice(REQUESTS) + said)
            conversation.answer(said, reasoning=thinking.doing(rng, "the same text again"))
    return conversation


def _spell(conversation: Conversation, rng: Rng) -> None:
    word = open_word(rng) if rng.random() < 0.5 else rng.choice(words("nouns"))
    conversation.user(rng.choice(SPELLING).format(w=word))
    conversation.answer("-".join(word), reasoning=thinking.doing(rng, f"the letters of {word}"))


def _cut(conversation: Conversation, rng: Rng) -> None:
    """A text whose repetition stops anywhere, and goes on."""
    said = text(rng)
    while not said.isascii() or len(said) < 4:
        said = text(rng)
    at = rng.randint(1, len(said) - 1)
    conversation.user(rng.choice(REQUESTS) + said)
    why = thinking.doing(rng, "the same text again")
    conversation.cut_answer(said[:at], eos=rng.random() < 0.75, reasoning=why)
    conversation.user(rng.choice(CONTINUES))
    conversation.answer(said[at:], reasoning=thinking.doing(rng, "the rest of the text"))
