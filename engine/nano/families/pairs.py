"""Many key-value pairs of one form, keys from a small grid, and questions about some of them."""

from collections.abc import Callable

from engine.nano import thinking
from engine.nano.chat import Conversation, Document
from engine.nano.families.recall import VALUE_ONLY, acknowledge, opening
from engine.nano.names import Rng, digits, entity, open_phrase, open_word, word
from engine.nano.vocabulary import words

FORMS = (
    "The code for {k} is {v}.",
    "{k}: {v}",
    "{k} = {v}",
    '"{k}": "{v}",',
    "{k} -> {v}",
    "| {k} | {v} |",
    "{k},{v}",
    "- {k}: {v}",
    "The value of {k} is {v}.",
    "{k} has the number {v}.",
)
QUESTIONS = (
    "What is the value of {k}?",
    "What is the code for {k}?",
    "Give the value for {k}.",
    "{k}?",
    "Which value belongs to {k}?",
    "Look up {k}.",
)
KINDS = ("two", "two", "two", "one", "open", "number", "entity", "id")
# letters of a line that make a token, low enough for lines full of digits and rare words
_LETTERS_A_TOKEN = 1.9
_COUNTS = (8, 16, 32, 64, 96, 128, 160)


def key_source(rng: Rng, kind: str, grid: int | None = None) -> Callable[[], str]:
    """A drawer of keys of one kind; `grid` x `grid` two-word keys."""
    first = rng.sample(words("adjectives"), grid or rng.randint(3, 14))
    second = rng.sample(words("nouns"), grid or rng.randint(3, 14))
    if grid is None and rng.random() < 0.25:
        first, second = [open_word(rng) for _ in first], [open_word(rng) for _ in second]
    return {
        "two": lambda: f"{rng.choice(first)} {rng.choice(second)}",
        "one": lambda: word(rng),
        "open": lambda: open_phrase(rng),
        "number": lambda: digits(rng, 4),
        "entity": lambda: entity(rng),
        "id": lambda: f"{first[0]}_{rng.randint(1, 400)}",
    }[kind]


def draw_pairs(
    rng: Rng, count: int, kind: str, length: int, grid: int | None = None
) -> dict[str, str]:
    """At most `count` distinct keys with values of `length` digits; fewer if the grid is small."""
    draw = key_source(rng, kind, grid)
    keys = dict.fromkeys(draw() for _ in range(2 * count))
    return {key: digits(rng, length) for key in list(keys)[:count]}


def make(rng: Rng, budget: int) -> Conversation:
    """2 to 160 pairs, dense or spread through filler, up to 12 questions."""
    questions = max(1, min(rng.randint(1, 12), budget // 64))
    wanted = (
        rng.choice((8, 16, 32, 64, 96, 128, 160)) if rng.random() < 0.8 else rng.randint(2, 160)
    )
    kind = rng.choice(KINDS)
    pairs = draw_pairs(rng, wanted, kind, rng.choice((3, 4, 5, 5, 5, 6, 7)))
    if rng.random() < 0.12:
        pairs = {key: open_word(rng) for key in pairs}
    form = rng.choice(FORMS)
    line_format = "{s}" if rng.random() < 0.75 or len(pairs) > 32 else None
    room = budget - 50 - 34 * questions
    pairs = that_fit(pairs, form, room, 0 if line_format else 9)
    start, width = rng.random(), rng.random() if rng.random() < 0.4 else 0.0
    spread = rng.random() < 0.6
    planted = [
        (
            rng.random() if spread else start + (1 - start) * width * n / len(pairs),
            form.format(k=k, v=v),
        )
        for n, (k, v) in enumerate(pairs.items())
    ]
    document = Document(opening(rng), planted, line_format=line_format)
    conversation = Conversation()
    before: tuple[Document, ...] = (document,)
    if rng.random() < 0.3:
        conversation.user(document)
        acknowledge(conversation, rng)
        before = ()
    for key in rng.sample(list(pairs), min(questions, len(pairs))):
        _ask(conversation, rng, pairs, key, before)
        before = ()
    return conversation


def that_fit(pairs: dict[str, str], form: str, room: int, margin: int = 0) -> dict[str, str]:
    """The first pairs (two at least) whose lines take about `room` tokens."""
    out: dict[str, str] = {}
    used = 0.0
    for key, value in pairs.items():
        used += len(form.format(k=key, v=value)) / _LETTERS_A_TOKEN + 1 + margin
        if used > room and len(out) >= 2:
            break
        out[key] = value
    return out


def _ask(
    conversation: Conversation,
    rng: Rng,
    pairs: dict[str, str],
    key: str,
    before: tuple[Document, ...],
) -> None:
    if rng.random() < 0.08 and len(pairs) > 4:
        keys = rng.sample(list(pairs), rng.choice((2, 3)))
        named = ", ".join(keys[:-1]) + f" and {keys[-1]}"
        text = ", ".join(pairs[k] for k in keys)
        conversation.user(*before, f"Give the values of {named}.")
        conversation.answer(text, reasoning=thinking.found(rng, f"values of {named}", text))
        return
    suffix = rng.choice((*VALUE_ONLY, "", "", "", ""))
    conversation.user(*before, rng.choice(QUESTIONS).format(k=key) + suffix)
    conversation.answer(pairs[key], reasoning=thinking.found(rng, f"value of {key}", pairs[key]))
