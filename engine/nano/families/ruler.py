"""RULER's wording of its needle tasks: noise haystacks, and haystacks that are all needles."""

from engine.nano import thinking
from engine.nano.chat import Conversation, Document
from engine.nano.families.pairs import that_fit
from engine.nano.filler import GRASS
from engine.nano.names import Rng, digits, entity, open_word
from engine.nano.vocabulary import words

OPENING = (
    "A special magic number is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the number afterwards.\n"
)
NEEDLE = "One of the special magic numbers for {k} is: {v}."
QUESTION = "What is the special magic number for {k} mentioned in the provided text?"
PREFIX = " The special magic number for {k} mentioned in the provided text is"
_TOKENS_A_NEEDLE = 24  # at least; more needles than fit are dropped


def key(rng: Rng, *, held_out: bool = False) -> str:
    """RULER's keys are an adjective and a noun; `held_out` draws words of no list."""
    if held_out or rng.random() < 0.35:
        return f"{open_word(rng)}-{open_word(rng)}"
    if rng.random() < 0.2:
        return entity(rng)
    return f"{rng.choice(words('adjectives'))}-{rng.choice(words('nouns'))}"


def noise(rng: Rng, budget: int) -> tuple[Document, dict[str, str]]:
    """niah_single_1: one needle among repeated sentences. The budget is met by the renderer."""
    del budget
    pair = {key(rng): digits(rng, 7)}
    planted = [(rng.random(), NEEDLE.format(k=k, v=v)) for k, v in pair.items()]
    return Document(OPENING, planted, line_format="{s}", filler=GRASS), pair


def needles(rng: Rng, budget: int, *, held_out: bool = False) -> tuple[Document, dict[str, str]]:
    """niah_multikey_2: every line of the haystack is a needle with another key."""
    count = max(2, (budget - 150) // _TOKENS_A_NEEDLE)
    count = count if rng.random() < 0.6 or held_out else rng.randint(2, count)
    pairs = {key(rng, held_out=held_out): digits(rng, 7) for _ in range(count)}
    pairs = that_fit(pairs, NEEDLE, budget - 150)
    planted = [(n / len(pairs), NEEDLE.format(k=k, v=v)) for n, (k, v) in enumerate(pairs.items())]
    return Document(OPENING, planted, line_format="{s}"), pairs


def make(rng: Rng, budget: int) -> Conversation:
    """One haystack, one to six questions; the answer as a sentence or as its ending."""
    builder = noise if rng.random() < 0.35 else needles
    document, pairs = builder(rng, budget - 320)
    conversation = Conversation()
    before: tuple[Document, ...] = (document,)
    for k in rng.sample(list(pairs), min(len(pairs), max(1, min(6, budget // 200)))):
        question, v = QUESTION.format(k=k), pairs[k]
        why = thinking.found(rng, f"special magic number for {k}", v)
        form = rng.random()
        if form < 0.35:
            conversation.user(*before, question)
            conversation.answer(f"{PREFIX[1:].format(k=k)} {v}.", reasoning=why)
        elif form < 0.7:
            conversation.user(*before, question + PREFIX.format(k=k))
            conversation.answer(v, reasoning=why)
        else:
            conversation.user(*before, question + " Answer with the number only.")
            conversation.answer(v, reasoning=why)
        before = ()
    return conversation
