"""The cheap questions about a failing chat, each with its evidence and what it cost."""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fidelity.deployment.deployment import Deployment
from fidelity.errors import CapabilityMissing, EndpointError, TrafficRefused
from fidelity.probes.accounting import too_short
from fidelity.probes.scoring import names_words
from fidelity.probes.wordlists import PEOPLE, QUALITIES, THINGS
from fidelity.triage.conversation import Conversation, text_of
from fidelity.triage.desk import Desk, Mode, Spent, Tally, Try
from fidelity.triage.judge import names
from fidelity.triage.pieces import filler, lengthened, of_blocks, salted, taken_apart
from fidelity.words import Traffic

MOST_CHARS_PER_TOKEN = 9
LENGTHS = 8
_MODULI = (2, 4, 8, 16)
_LONG_CHARS = 4_000


class Answered(StrEnum):
    """What a question came to."""

    CLEARED = "cleared"
    """It is not that."""
    POINTS = "points there"
    OPEN = "open"
    """It cannot be told."""
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question answered.

    Attributes:
        name: of the question, one word.
        asked: the question.
        says: the answer with its evidence, one sentence.
        answered: what it came to.
        requests: that it took.
        trials: ids behind it.
    """

    name: str
    asked: str
    says: str
    answered: Answered
    requests: int = 0
    trials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the questions are asked about.

    Attributes:
        desk: that sends.
        deployment: that is asked.
        smallest: the smallest chat that fails.
        original: as it was given.
        facts: expected texts that stand before the question.
        mode: in which it fails.
        repeats: of one arm.
        hops: other ways to the same model, by name.
        stock: the deployment to compare with, by name; empty without one.
    """

    desk: Desk
    deployment: Deployment
    smallest: Conversation
    original: Conversation
    facts: tuple[str, ...]
    mode: Mode
    repeats: int
    hops: Mapping[str, Deployment | str]
    stock: Mapping[str, Deployment | str]


Ask = Callable[[Case], Awaitable[Answer]]


async def ask_all(case: Case) -> list[Answer]:
    """Ask every question in order; those that the bound left unasked say so."""
    answers: list[Answer] = []
    questions: Sequence[tuple[str, str, Ask]] = (
        ("rendering", "does every turn stand in the rendered prompt?", rendering),
        ("cold", "does it fail on a cold prefix as on a cached one?", cold),
        ("short", "is the same question answered in one short message?", short),
        ("length", "does it fail at every length?", length),
        ("reasoning", "does it fail with reasoning on and off?", reasoning),
        ("hop", "does it fail at another hop?", hop),
        ("stock", "does it fail on a stock deployment?", stock),
    )
    for name, asked, ask in questions:
        before = case.desk.requests
        try:
            answer = await ask(case)
        except Spent:
            answer = _answer(name, asked, Answered.NOT_ASKED, "the bound on requests is reached")
        except (EndpointError, CapabilityMissing, TrafficRefused) as error:
            answer = _answer(name, asked, Answered.OPEN, f"it could not be asked: {error}")
        answers.append(
            Answer(
                name=name,
                asked=asked,
                says=answer.says,
                answered=answer.answered,
                requests=case.desk.requests - before,
                trials=answer.trials,
            )
        )
    return answers


def _answer(
    name: str, asked: str, answered: Answered, says: str, tries: Sequence[Try] = ()
) -> Answer:
    return Answer(
        name=name,
        asked=asked,
        says=says,
        answered=answered,
        trials=tuple(one.trial for one in tries),
    )


def _says(answered: Answered, says: str, tries: Sequence[Try] = ()) -> Answer:
    return _answer("", "", answered, says, tries)


async def rendering(case: Case) -> Answer:
    """Leave each turn out: the prompt must get shorter by it. Then look at the prompt itself."""
    desk, chat = case.desk, case.smallest
    ids = case.deployment.capabilities.has("token_ids")
    whole = await desk.try_once("rendering", chat, answer_tokens=1, return_token_ids=ids)
    tokens = whole.prompt_tokens
    if tokens is None:
        return _says(Answered.OPEN, "the server tells no prompt tokens", [whole])
    if too_short(chat.messages, tokens):
        characters = chat.characters
        return _says(
            Answered.POINTS,
            f"no: {tokens} prompt tokens cannot hold its {characters:,} characters",
            [whole],
        )
    said, tries = [], [whole]
    head, question = taken_apart(chat)
    for at, block in enumerate(head, start=1):
        without = of_blocks(chat, [*head[: at - 1], *head[at:], question])
        one = await desk.try_once("rendering", without, answer_tokens=1)
        tries.append(one)
        if one.prompt_tokens is None:
            continue
        grown = tokens - one.prompt_tokens
        characters = sum(len(text_of(message)) for message in block)
        if characters and grown < max(1, characters / MOST_CHARS_PER_TOKEN):
            return _says(
                Answered.POINTS,
                f"no: turn {at} of {chat.turns} ({characters} characters) adds {grown} tokens to a"
                f" prompt of {tokens}",
                tries,
            )
        said.append(f"turn {at} adds {grown}")
    seen = await _in_the_text(case, whole)
    if seen is not None and not seen:
        return _says(
            Answered.POINTS, f"no: the rendered prompt of {tokens} tokens lacks its text", tries
        )
    if not said and seen is None:
        return _says(Answered.OPEN, "there is nothing before the question to be counted", tries)
    words = f"yes: of {tokens} prompt tokens {', '.join(said)}" if said else f"yes: {tokens} tokens"
    return _says(
        Answered.CLEARED,
        words + ("; its text stands in the rendered prompt" if seen else ""),
        tries,
    )


async def _in_the_text(case: Case, whole: Try) -> bool | None:
    """Tell whether the rendered prompt holds what was told; None where it cannot be read."""
    reply = whole.reply
    if reply is None or not reply.prompt_token_ids:
        return None
    if not case.deployment.capabilities.has("detokenize"):
        return None
    try:
        text = await case.desk.client.detokenize(reply.prompt_token_ids)
    except (EndpointError, CapabilityMissing):
        return None
    told = [text_of(message) for message in case.smallest.context if text_of(message).strip()]
    if case.facts:
        return all(names(text, fact) for fact in case.facts)
    return all(names_words(text, line[:_LONG_CHARS]) for line in told)


async def cold(case: Case) -> Answer:
    """Send the chat cold and then once more: cached. Cold is flushed where that is allowed.

    Elsewhere it opens with words that no server has seen.
    """
    flushed = case.deployment.capabilities.has("flush")
    flushed = flushed and Traffic.DISRUPTIVE in case.desk.client.caps.allow
    first, second = Tally(), Tally()
    for _ in range(case.repeats):
        if flushed:
            await case.desk.client.flush_cache()
            fresh = case.smallest
        else:
            fresh = await _of_same_residue(case, salted(case.smallest, _salt()))
        first.tries.append(await case.desk.try_once("cold", fresh, mode=case.mode))
        second.tries.append(await case.desk.try_once("cold", fresh, mode=case.mode))
    how = "flushed" if flushed else "cold"
    words = f"{how} {first.words}, again {second.words} ({_hits(second)})"
    tries = [*first.tries, *second.tries]
    if not first.judged or not second.judged:
        return _says(Answered.OPEN, words, tries)
    if first.never and second.failed > 1:
        return _says(Answered.POINTS, f"only from the cache: {words}", tries)
    if first.never and second.never:
        if flushed:
            return _says(Answered.POINTS, f"only before the cache was flushed: {words}", tries)
        return _says(
            Answered.OPEN, f"with neither, once other words stand before it: {words}", tries
        )
    return _says(Answered.CLEARED, f"yes: {words}", tries)


def _hits(second: Tally) -> str:
    hits = [one.reply.cached_tokens for one in second.tries if one.reply is not None]
    if not hits or any(hit is None for hit in hits):
        return "the server does not tell cached tokens"
    if not any(hits):
        return "nothing came from a cache the second time either"
    return f"up to {max(hit or 0 for hit in hits)} tokens came from the cache"


async def _of_same_residue(case: Case, chat: Conversation) -> Conversation:
    """Return the chat, some words longer, so that its length differs by a multiple of 16.

    A fault of one residue would else vanish for a reason that has nothing to do with the cache.
    """
    try:
        wanted = await counted(case.desk, case.smallest)
        return await of_residue(case.desk, chat, (wanted, _MODULI[-1]))
    except CapabilityMissing:
        return chat


def _salt() -> str:
    """Return a few words whose like no server has seen; letters only, since codes are digits."""
    words = [secrets.choice((*PEOPLE, *QUALITIES, *THINGS)) for _ in range(5)]
    return f"Note {' '.join(words)}."


async def short(case: Case) -> Answer:
    """Say it all in one message, at neighbouring lengths: can this model answer it at all?"""
    chat = case.smallest
    if not case.facts:
        return _says(Answered.NOT_ASKED, "it needs --expect with a text that the chat tells")
    lines = [
        line
        for message in chat.context
        for line in text_of(message).splitlines()
        if any(names(line, fact) for fact in case.facts)
    ]
    told = "\n".join(dict.fromkeys(line.strip() for line in lines))
    tally = Tally()
    for step in range(LENGTHS // 2):
        text = f"{told}{filler(step)}\n{chat.question}"
        one = of_blocks(chat, [({"role": "user", "content": text},)])
        tally.tries.append(await case.desk.try_once("short", one))
    words_ = f"{tally.words} at {LENGTHS // 2} neighbouring lengths, greedily"
    if tally.never:
        return _says(Answered.CLEARED, f"yes: {words_}, so that the model can", tally.tries)
    if tally.always:
        return _says(Answered.POINTS, f"no: {words_}", tally.tries)
    return _says(Answered.OPEN, f"at some lengths: {words_}", tally.tries)


async def length(case: Case) -> Answer:
    """Lengthen the chat word by word: a fault of one residue shows itself."""
    seen, tries = await lengths(case.desk, case.smallest)
    if not seen:
        return _says(Answered.OPEN, "no answer could be judged", tries)
    failing = sorted({tokens for tokens, failed in seen if failed})
    shown = f"{sum(f for _, f in seen)} of {len(seen)} fail at {min(t for t, _ in seen)} to"
    shown += f" {max(t for t, _ in seen)} tokens"
    if all(failed for _, failed in seen):
        return _says(Answered.CLEARED, f"yes: {shown}", tries)
    if not failing:
        return _says(Answered.OPEN, f"no: {shown}; none of them greedily", tries)
    residue = residue_of(seen)
    if residue is None:
        listed = ", ".join(map(str, failing))
        return _says(Answered.OPEN, f"no: {shown} ({listed}), by no plain rule", tries)
    return _says(
        Answered.POINTS,
        f"only at some lengths: {shown}, exactly those of {residue[0]} modulo {residue[1]} tokens",
        tries,
    )


async def lengths(desk: Desk, chat: Conversation) -> tuple[list[tuple[int, bool]], list[Try]]:
    """Return (prompt tokens, failed) of the chat at growing lengths, and the tries."""
    tries = [await desk.try_once("length", lengthened(chat, words)) for words in range(LENGTHS)]
    seen = [
        (one.prompt_tokens, one.failed)
        for one in tries
        if one.prompt_tokens is not None and one.failed is not None
    ]
    return [(tokens, failed) for tokens, failed in seen], tries


def residue_of(seen: Sequence[tuple[int, bool]]) -> tuple[int, int] | None:
    """Return (residue, modulus) when exactly the lengths of one residue fail, two at least."""
    for modulus in _MODULI:
        failing = {tokens % modulus for tokens, failed in seen if failed}
        if len(failing) != 1:
            continue
        (residue,) = failing
        inside = {tokens: failed for tokens, failed in seen if tokens % modulus == residue}
        if len(inside) > 1 and all(inside.values()) and len(inside) < len(seen):
            return residue, modulus
    return None


async def of_residue(desk: Desk, chat: Conversation, wanted: tuple[int, int]) -> Conversation:
    """Return the chat with filler so that its tokens have a residue; as it is, where none fits.

    Args:
        desk: whose server counts.
        chat: to lengthen.
        wanted: (a number of that residue, modulus).

    Raises:
        CapabilityMissing: the server does not count tokens, or is not believed.
    """
    number, modulus = wanted
    for step in range(2 * modulus):
        longer = lengthened(chat, step)
        if (await counted(desk, longer) - number) % modulus == 0:
            return longer
    return chat


async def counted(desk: Desk, chat: Conversation) -> int:
    """Return the prompt tokens of a chat, as the server's tokenizer counts them."""
    return (await desk.client.tokenize(chat.messages, tools=chat.tools)).count


async def reasoning(case: Case) -> Answer:
    """Ask with reasoning switched on and off, at neighbouring lengths: the switch changes those."""
    if not case.deployment.capabilities.has("reasoning"):
        return _says(Answered.NOT_ASKED, "the server shows no reasoning")
    arms = {"on": Tally(), "off": Tally()}
    for step in range(LENGTHS // 2):
        chat = lengthened(case.smallest, step)
        for word, tally in arms.items():
            tally.tries.append(
                await case.desk.try_once("reasoning", chat, mode=case.mode, thinking=word == "on")
            )
    words = ", ".join(f"{word}: {tally.words}" for word, tally in arms.items())
    words += f" at {LENGTHS // 2} neighbouring lengths"
    tries = [one for tally in arms.values() for one in tally.tries]
    on, off = arms["on"], arms["off"]
    if (on.never and off.always) or (on.always and off.never):
        return _says(Answered.POINTS, f"no: {words}", tries)
    if on.failed and off.failed:
        return _says(Answered.CLEARED, f"yes: {words}", tries)
    return _says(Answered.OPEN, words, tries)


async def hop(case: Case) -> Answer:
    """Ask the workers behind the router, or what else was named."""
    if not case.hops:
        return _says(Answered.NOT_ASKED, "no other hop is known: --hop URL, or roles in the file")
    return await _elsewhere(case, "hop", case.hops, elsewhere="there")


async def stock(case: Case) -> Answer:
    """Ask a deployment that has none of the patches."""
    if not case.stock:
        return _says(Answered.NOT_ASKED, "no stock deployment is named: --stock NAME_OR_URL")
    return await _elsewhere(case, "stock", case.stock, elsewhere="on stock")


async def _elsewhere(
    case: Case, name: str, others: Mapping[str, Deployment | str], *, elsewhere: str
) -> Answer:
    said, tries, healthy = [], [], []
    for other, deployment in others.items():
        if isinstance(deployment, str):
            said.append(f"{other} does not answer ({deployment[:160]})")
            continue
        try:
            tally = await case.desk.tally(
                name, case.smallest, case.repeats, mode=case.mode, client=deployment.client
            )
        except EndpointError as error:
            said.append(f"{other} does not answer ({str(error)[:160]})")
            continue
        said.append(f"{other}: {tally.words}")
        tries += tally.tries
        if tally.judged:
            healthy.append(tally.never)
    words = "; ".join(said)
    if not healthy:
        return _says(Answered.OPEN, words, tries)
    if any(healthy):
        return _says(Answered.POINTS, f"only here, not {elsewhere}: {words}", tries)
    return _says(Answered.CLEARED, f"yes: {words}", tries)
