"""Facts about entities, told once among filler and asked for later; some are updated."""

from engine.nano.chat import Conversation, Document
from engine.nano.families.recall import (
    acknowledge,
    ask,
    ask_unknown,
    maybe_system,
    opening,
)
from engine.nano.families.wording import PLAIN, UPDATES, Fact, draw_form, tell
from engine.nano.names import Rng, attribute, entity, held_out, near, value

_TOKENS_A_FACT = 40
_UNKNOWN = 0.05


def facts(rng: Rng, count: int) -> list[Fact]:
    """Distinct facts; near twins of one another in almost half of all cases."""
    shared = attribute(rng) if rng.random() < 0.5 else None
    twins = rng.random() < 0.45
    out: list[Fact] = []
    seen = set()
    while len(out) < count:
        what = shared or attribute(rng)
        who = entity(rng)
        if twins and out and rng.random() < 0.5:
            other = rng.choice(out)
            if shared or rng.random() >= 0.35:
                who, what = near(rng, other.entity), other.attribute
            else:
                who = other.entity
        key = (what, who.lower())
        if key not in seen and not held_out(who):
            seen.add(key)
            out.append(Fact(what, who, value(rng)))
    return out


def make(rng: Rng, budget: int) -> Conversation:
    """Up to 16 facts in one document, up to 8 questions."""
    most = max(1, min(16, (budget - 60) // _TOKENS_A_FACT))
    count = rng.randint(1, min(4, most)) if rng.random() < 0.3 else rng.randint(1, most)
    told = facts(rng, count)
    shared = _shared_form(rng)
    planted = [(rng.random(), tell(rng, fact, shared)) for fact in told]
    asked = list(range(count))
    rng.shuffle(asked)
    if rng.random() < 0.25:
        changed = asked[: rng.randint(1, min(count, 3))]
        for at in changed:
            told[at] = Fact(told[at].attribute, told[at].entity, value(rng))
            planted.append(
                (rng.uniform(planted[at][0], 1.0), tell(rng, told[at], rng.choice(UPDATES)))
            )
    conversation = Conversation()
    maybe_system(conversation, rng)
    document = Document(opening(rng), planted)
    before: tuple[Document, ...] = (document,)
    if rng.random() < 0.3:
        conversation.user(document)
        acknowledge(conversation, rng)
        before = ()
    for at in asked[: max(1, min(rng.randint(1, 8), budget // 90))]:
        if rng.random() < _UNKNOWN:
            ask_unknown(conversation, rng, _stranger(rng, told), *before)
        else:
            ask(conversation, rng, told[at], *before)
        before = ()
    return conversation


def _shared_form(rng: Rng) -> str | None:
    """One form for all facts of a document; None lets each have its own."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(PLAIN)
    return draw_form(rng) if kind < 0.45 else None


def _stranger(rng: Rng, told: list[Fact]) -> Fact:
    """A fact that nobody told: another entity, so that no near twin makes the question unfair."""
    known = {fact.entity.lower() for fact in told}
    while True:
        who = entity(rng)
        if who.lower() not in known:
            return Fact(rng.choice(told).attribute, who, "")
