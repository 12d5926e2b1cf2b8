"""Words of no list, told at the start of a line or inside it and asked for the other way round.

A word has other tokens after a space than at the start of a line, of a quotation or of an answer.
To give it back in another place, the model must know which tokens spell the same letters; here it
meets many such words, in the sentences of the families in which they are rare.
"""

from engine.nano import thinking
from engine.nano.chat import SOFT, Conversation, Document
from engine.nano.families import passkey, turns
from engine.nano.families.recall import ACKNOWLEDGEMENTS, VALUE_ONLY, acknowledge, opening
from engine.nano.names import Rng, digits, open_name, open_phrase, open_word, value, word

# (told of a thing, told of something of one's own): the value begins the sentence
_AT_THE_START = (
    ("{v} is the {a}.", "{v} is my {a}."),
    ("{v} is the {a}.", "{v} is my {a}."),
    ("{v} is the name of the {a}.", "{v} is the name of my {a}."),
    ("{v} is what the {a} is called.", "{v} is what I call my {a}."),
    ("{v}, that is the {a}.", "{v}, that is my {a}."),
    ("{v}: the {a}.", "{v}: my {a}."),
    ("{v} = the {a}", "{v} = my {a}"),
    ("{v} ({a}).", "{v} (my {a})."),
    ('"{v}" is the {a}.', '"{v}" is my {a}.'),
)
_START = 0.65
_TOKENS_A_FACT = 70
_DIGITS = 0.3


def make(rng: Rng, budget: int) -> Conversation:
    """2 to 10 facts without an owner, in a document or in turns; most of them are asked for."""
    count = rng.randint(2, max(2, min(10, budget // _TOKENS_A_FACT)))
    own = rng.random() < 0.45
    named: dict[str, str] = {}
    while len(named) < count:
        what = rng.choice(turns.OWN) if own and rng.random() < 0.7 else passkey.unowned(rng)
        named[what] = _value(rng)
    conversation = Conversation()
    statements = [_statement(rng, what, said, own=own) for what, said in named.items()]
    before: tuple[Document, ...] = ()
    if rng.random() < 0.4:
        for statement in statements:
            conversation.user(statement)
            conversation.answer(rng.choice(turns.NODS), SOFT)
        conversation.user(Document(opening(rng)))
        conversation.answer(rng.choice(ACKNOWLEDGEMENTS), SOFT)
    else:
        document = Document(opening(rng), [(rng.random(), s) for s in statements])
        if rng.random() < 0.3:
            conversation.user(document)
            acknowledge(conversation, rng)
        else:
            before = (document,)
    for what in rng.sample(list(named), rng.randint((count + 1) // 2, count)):
        _ask(conversation, rng, what, named[what], before, own=own)
        before = ()
    return conversation


def _value(rng: Rng) -> str:
    kind = rng.random()
    if kind < _DIGITS:
        return value(rng)
    if kind < 0.45:
        parts = (word, lambda r: digits(r, 2), open_word)
        return "-".join(rng.choice(parts)(rng) for _ in range(rng.choice((2, 3, 3))))
    if kind < 0.65:
        return open_name(rng)
    if kind < 0.75:
        return open_phrase(rng)
    name = open_word(rng)
    return rng.choice((name, name.capitalize(), name.capitalize(), name.upper()))


def _statement(rng: Rng, what: str, said: str, *, own: bool) -> str:
    if rng.random() < _START:
        return rng.choice(_AT_THE_START)[own].format(a=what, v=said)
    if own:
        return rng.choice(turns.OF_ONESELF).format(w=what, v=said)
    return rng.choice(passkey.STATEMENTS).format(a=what, A=what.capitalize(), v=said)


def _ask(
    conversation: Conversation,
    rng: Rng,
    what: str,
    said: str,
    before: tuple[Document, ...],
    *,
    own: bool,
) -> None:
    question = rng.choice(turns.ASKED_OF_ONESELF if own else passkey.QUESTIONS)
    question = question.format(a=what, w=what)
    why = thinking.found(rng, what, said)
    if rng.random() < 0.5:
        conversation.user(*before, question + rng.choice(VALUE_ONLY))
        conversation.answer(said, reasoning=why)
    else:
        conversation.user(*before, question)
        whose = "Your" if own else "The"
        conversation.answer(f"{whose} {what} is {said}.", reasoning=why)
