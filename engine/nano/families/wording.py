"""How a fact is told and asked for: forms of many orders and layouts, and some held out.

A, E and V stand for attribute, entity (E with a capital: at the start of a sentence) and value; W
is a value that no longer holds, N and M are people, x is something that an entity does.
"""

from dataclasses import dataclass

from engine.nano.filler import DAYS
from engine.nano.names import Rng, digits, open_name, open_word
from engine.nano.vocabulary import words

PLAIN = (
    "The {a} for {e} is {v}.",
    "The {a} for {e} is {v}.",
    "One of the {a}s for {e} is: {v}.",
    "The {a} of {e} is {v}.",
    "Remember: the {a} for {e} is {v}.",
    "Note that the {a} for {e} is {v}.",
    "For {e}, the {a} is {v}.",
    "{e} has the {a} {v}.",
    "{E}'s {a} is {v}.",
    "The {a} that belongs to {e} is {v}.",
    "{E} uses the {a} {v}.",
    "In the case of {e} the {a} is {v}.",
)
PASSIVE = (
    "{E} was given the {a} {v}.",
    "{E} has been issued with the {a} {v}.",
    "The {a} for {e} was set to {v}.",
    "The {a} of {e} has been fixed at {v}.",
    "For {e} the {a} {v} was chosen.",
    "The {a} {v} was given to {e}.",
    "The {a} {v} has been reserved for {e}.",
)
VALUE_FIRST = (
    "{v} is the {a} for {e}.",
    "{v} is the {a} of {e}.",
    "{v}: that is the {a} for {e}.",
    "Use {v} as the {a} for {e}.",
    "Enter {v}, the {a} of {e}.",
    "It is {v} that {e} has as {a}.",
    "{v} ({a}, {e})",
    "{v} belongs to {e} as the {a}.",
)
APPOSITION = (
    "{E}, whose {a} is {v}, {x}.",
    "{E}, with the {a} {v}, {x}.",
    "{E} ({a} {v}) {x}.",
    "{E} (its {a} is {v}) {x}.",
    "The {a}, {v}, belongs to {e}.",
    "{E} {x}; its {a} is {v}.",
    "{E} {x} and keeps the {a} {v}.",
)
FIELDS = (
    "{e}.{a} = {v}",
    "{a} of {e} = {v}",
    "{a} ({e}) = {v}",
    "{e}: {a}={v}",
    "owner={e} {a}={v}",
    "| {e} | {a} | {v} |",
    "{e} | {a} | {v}",
    "{e},{a},{v}",
    "{e} - {a} - {v}",
    "{e}/{a} -> {v}",
    "{a} [{e}]: {v}",
    "- {e}: {a} {v}",
    "* {a} ({e}): {v}",
    "set {e} {a} {v}",
    '{{"owner": "{e}", "{a}": "{v}"}}',
    '{{"name": "{e}", "field": "{a}", "value": "{v}"}}',
    '"{e}": {{"{a}": "{v}"}},',
    "name: {e}; {a}: {v}",
)
NOTES = (
    "Note to self: {a} {e} {v}",
    "Reminder: {e} has {v} as {a}.",
    "memo - {a} for {e}: {v}",
    "{e} / {a} / {v} / {d}",
    "To do: use the {a} {v} at {e}.",
    "New entry, {e}: the {a} is {v}.",
)
DIALOGUE = (
    "{N} asked for the {a} of {e}, and {M} answered: {v}.",
    '{N}: "Which {a} does {e} have?" {M}: "{v}."',
    "{N} wanted the {a} for {e}. {M} said {v}.",
    '"{v}", said {N} when asked for the {a} of {e}.',
    "{N} > what is the {a} for {e}? {M} > {v}",
)
CORRECTION = (
    "The {a} for {e} is not {w} but {v}.",
    "The {a} for {e} was {w}, and now it is {v}.",
    "{E} had the {a} {w} before; now it is {v}.",
    "Not {w}: the {a} for {e} is {v}.",
    "The {a} for {e} is {v} (formerly {w}).",
)
ODD = (
    "{E} {y} the {a} {v}.",
    "{E} {y} {z} {a}: {v}.",
    "{z} {a} {y} {e} {z} {v}.",
    "{e} {a} {v}",
    "{a} {e} {v}",
)
WRAPS = (
    "I heard that {s}",
    "{N} says that {s}",
    "{N} told me that {s}",
    "{N} noted: {s}",
    '{N} said: "{s}"',
    "By the way, {s}",
    "Remember that {s}",
    "Do not forget: {s}",
    "As you know, {s}",
    "On {d} it was announced that {s}",
    "According to {N}, {s}",
    "It is certain that {s}",
    "Important! {s}",
    "PS: {s}",
    "FYI: {s}",
    "> {s}",
    "{s} Keep it in mind.",
    "{s} Nobody else knows it.",
    "{s} {N} confirmed it.",
)
_KINDS = {
    PLAIN: 0.46,
    PASSIVE: 0.07,
    VALUE_FIRST: 0.11,
    APPOSITION: 0.07,
    FIELDS: 0.12,
    NOTES: 0.04,
    DIALOGUE: 0.05,
    CORRECTION: 0.05,
    ODD: 0.03,
}
_WRAPPED = (PLAIN, PASSIVE, VALUE_FIRST, APPOSITION, CORRECTION)
_WRAP = 0.2
UPDATES = (
    "Update: the {a} for {e} is now {v}.",
    "The {a} for {e} has changed to {v}.",
    "Correction: the {a} for {e} is {v}.",
    "The new {a} for {e} is {v}.",
    "The {a} for {e} is {v}.",
    "{E} now has the {a} {v}.",
    "From now on the {a} for {e} is {v}.",
    "I was wrong: the {a} for {e} is {v}.",
)
QUESTIONS = (
    "What is the {a} for {e}?",
    "What is the {a} for {e}?",
    "What is the {a} for {e}?",
    "What is the {a} of {e}?",
    "What is the {a} of {e}?",
    "Tell me the {a} for {e}.",
    "Which {a} was given for {e}?",
    "Give the {a} of {e}.",
    "what was the {a} for {e} again?",
    "{a} for {e}?",
    "What is the {a} for {e} mentioned in the provided text?",
    "Do you remember the {a} for {e}?",
    "Which {a} does {e} have?",
    "What {a} does {e} use?",
    "What is {e}'s {a}?",
    "I need the {a} for {e}.",
    "I would like to know the {a} of {e}.",
    "Find the {a} for {e}.",
    "Could you repeat the {a} for {e}?",
    "Please give me the {a} of {e}.",
    "Show me the {a} for {e}, please.",
    "{E}: which {a}?",
    "As for {e}, what is the {a}?",
    "Remind me of the {a} for {e}.",
    "Let me know which {a} belongs to {e}.",
    "According to the notes, what is the {a} for {e}?",
    "My question is about {e}: what is the {a}?",
    "Someone asks for the {a} of {e}. What do you say?",
)
# never used in training: the card's cells of unseen wording
UNSEEN_STATEMENTS = (
    "They say that {v} is the {a} for {e}.",
    "{e} was assigned the {a} {v}.",
    "Somebody wrote down the {a} for {e}: {v}.",
)
UNSEEN_FORMS = (
    "With {v} as the {a}, {e} is ready.",
    "At {e} one types {v} where the {a} is wanted.",
    "The {a} printed on the door of {e} reads {v}.",
    '<record owner="{e}"><{a}>{v}</{a}></record>',
    "Q. And {e}? A. There the {a} would be {v}.",
    "{E} and its {a} ({v}) came up once more.",
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

    def say(self, template: str, **others: str) -> str:
        """The fact in the words of a template."""
        name = self.entity[:1].upper() + self.entity[1:]
        return template.format(a=self.attribute, e=self.entity, E=name, v=self.value, **others)

    @property
    def subject(self) -> str:
        """What is asked for, without the value."""
        return f"{self.attribute} for {self.entity}"


def draw_form(rng: Rng) -> str:
    """A template of a statement, perhaps inside another sentence."""
    kind = rng.choices(list(_KINDS), weights=list(_KINDS.values()))[0]
    form = rng.choice(kind)
    if kind not in _WRAPPED or form.startswith(("Remember", "Note")) or rng.random() >= _WRAP:
        return form
    wrap = rng.choice(WRAPS)
    if form.startswith("The ") and not wrap.startswith("{s}"):
        form = "the" + form[3:]
    return wrap.replace("{s}", form)


def tell(rng: Rng, fact: Fact, form: str | None = None) -> str:
    """The fact in a form, else in one drawn; what the form names besides is drawn too."""
    form = draw_form(rng) if form is None else form
    return fact.say(
        form,
        w=_another(rng, fact.value),
        N=open_name(rng),
        M=open_name(rng),
        d=rng.choice(DAYS),
        x=f"{rng.choice(words('verbs'))} the {rng.choice(words('nouns'))}",
        y=rng.choice(words("verbs")) if rng.random() < 0.6 else open_word(rng),
        z=rng.choice(words("small_words")) if rng.random() < 0.6 else open_word(rng),
    )


def _another(rng: Rng, value: str) -> str:
    """A value of the same kind that differs."""
    if not value.isdigit():
        return digits(rng, 5)
    while (other := digits(rng, len(value))) == value:
        pass
    return other
