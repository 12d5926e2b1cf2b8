"""Repeat exactly: names, noise, code points of many scripts: what copying letters needs."""

from engine.nano import thinking
from engine.nano.chat import Conversation
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

_PARTS = (
    open_word,
    lambda r: r.choice(words("nouns")),
    lambda r: r.choice(_SAMPLES),
    lambda r: digits(r, 3),
)


def text(rng: Rng) -> str:
    """Something to repeat."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice((open_name, open_phrase, open_name))(rng)
    if kind < 0.32:
        return " ".join(open_word(rng) for _ in range(rng.randint(2, 10)))
    if kind < 0.5:
        parts = [rng.choice(_PARTS)(rng) for _ in range(rng.randint(2, 14))]
        return " ".join(parts)
    if kind < 0.62:
        return "".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(3, 20)))
    if kind < 0.8:
        return code_points(rng)
    return sentence(rng)


def code_points(rng: Rng) -> str:
    """Assigned and unassigned characters of one or several scripts."""
    ranges = _RANGES if rng.random() < 0.4 else (rng.choice(_RANGES),)
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(2, 9)))


def make(rng: Rng, budget: int) -> Conversation:
    """Exchanges until about the budget, fewer now and then."""
    conversation = Conversation()
    read_first(conversation, rng, 0.8 if budget > 1000 else 0.0)
    most = max(1, min(60, budget // 60))
    for _ in range(rng.randint(1 if rng.random() < 0.3 else most // 2 + 1, most)):
        said = text(rng)
        conversation.user(rng.choice(REQUESTS) + said)
        conversation.answer(said, reasoning=thinking.doing(rng, "the same text again"))
    return conversation
