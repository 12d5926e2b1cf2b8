"""Wording that the recall families share: statements, questions, the forms of an answer."""

from dataclasses import dataclass

from engine.nano import thinking
from engine.nano.chat import SOFT, Conversation, Document
from engine.nano.filler import OPENINGS
from engine.nano.names import Rng

ACKNOWLEDGEMENTS = ("OK.", "Noted.", "I have read it.", "Understood.")
STATEMENTS = (
    "The {a} for {e} is {v}.",
    "The {a} for {e} is {v}.",
    "One of the {a}s for {e} is: {v}.",
    "The {a} of {e} is {v}.",
    "Remember: the {a} for {e} is {v}.",
    "Note that the {a} for {e} is {v}.",
    "For {e}, the {a} is {v}.",
    "{e} has the {a} {v}.",
)
UPDATES = (
    "Update: the {a} for {e} is now {v}.",
    "The {a} for {e} has changed to {v}.",
    "Correction: the {a} for {e} is {v}.",
    "The new {a} for {e} is {v}.",
    "The {a} for {e} is {v}.",
)
QUESTIONS = (
    "What is the {a} for {e}?",
    "What is the {a} for {e}?",
    "What is the {a} of {e}?",
    "Tell me the {a} for {e}.",
    "Which {a} was given for {e}?",
    "Give the {a} of {e}.",
    "what was the {a} for {e} again?",
    "{a} for {e}?",
    "What is the {a} for {e} mentioned in the provided text?",
    "Do you remember the {a} for {e}?",
)
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
# never used in training: the card's cells of unseen wording
UNSEEN_STATEMENTS = (
    "They say that {v} is the {a} for {e}.",
    "{e} was assigned the {a} {v}.",
    "Somebody wrote down the {a} for {e}: {v}.",
)
UNSEEN_QUESTIONS = (
    "Can you tell me what the {a} for {e} was?",
    "I forgot the {a} for {e}. What is it?",
    "Please look up the {a} for {e}.",
)


@dataclass(frozen=True, slots=True)
class Fact:
    """That the `attribute` of the `entity` is `value`."""

    attribute: str
    entity: str
    value: str

    def say(self, template: str) -> str:
        """The fact in the words of a template."""
        return template.format(a=self.attribute, e=self.entity, v=self.value)

    @property
    def subject(self) -> str:
        """What is asked for, without the value."""
        return f"{self.attribute} for {self.entity}"


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
