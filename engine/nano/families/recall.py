"""What the recall families share: questions, the forms of an answer, documents only read."""

from engine.nano import thinking
from engine.nano.chat import SOFT, Conversation, Document
from engine.nano.families.wording import QUESTIONS, Fact
from engine.nano.filler import OPENINGS
from engine.nano.names import Rng

ACKNOWLEDGEMENTS = ("OK.", "Noted.", "I have read it.", "Understood.")
VALUE_ONLY = (
    " Answer with the code only.",
    " Reply with the value only.",
    " Answer with the digits only.",
    " Only the code, please.",
    " Reply with just the code.",
    " Answer with only the number.",
    " Answer with the value only.",
    " Reply with the code and nothing else.",
)


def ask(conversation: Conversation, rng: Rng, fact: Fact, *before: str | Document) -> None:
    """Add the question about a fact (after `before`, in one message) and its answer."""
    question = fact.say(rng.choice(QUESTIONS))
    why = thinking.found(rng, fact.subject, fact.value)
    if rng.random() < 0.75:
        conversation.user(*before, question + rng.choice(VALUE_ONLY))
        conversation.answer(fact.value, reasoning=why)
    else:
        conversation.user(*before, question)
        conversation.answer(
            f"The {fact.attribute} for {fact.entity} is {fact.value}.", reasoning=why
        )


def ask_unknown(conversation: Conversation, rng: Rng, fact: Fact, *before: str | Document) -> None:
    """Ask for something that was never told."""
    question = fact.say(rng.choice(QUESTIONS))
    why = thinking.absent(rng, fact.subject)
    if rng.random() < 0.5:
        conversation.user(*before, question + rng.choice(VALUE_ONLY))
        conversation.answer("I do not know.", reasoning=why)
    else:
        conversation.user(*before, question)
        text = f"I have not been told the {fact.attribute} for {fact.entity}."
        conversation.answer(text, reasoning=why)


def acknowledge(conversation: Conversation, rng: Rng) -> None:
    """Add the short answer to something that was only told."""
    conversation.answer(rng.choice(ACKNOWLEDGEMENTS), SOFT)


def opening(rng: Rng) -> str:
    """How a document is announced, or nothing."""
    return rng.choice(OPENINGS)


def read_first(conversation: Conversation, rng: Rng, chance: float = 0.5) -> None:
    """Perhaps add a document that is only read and acknowledged."""
    if rng.random() < chance:
        conversation.user(Document(opening(rng)))
        acknowledge(conversation, rng)


def maybe_system(conversation: Conversation, rng: Rng) -> None:
    """Perhaps add a system text."""
    if rng.random() < 0.15:
        conversation.system = rng.choice(
            ("You are a helpful assistant.", "Be brief.", "You are a helpful assistant.\n\n")
        )
