"""The cheap questions about a failing chat, each with its evidence and what it cost."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from fidelity.errors import CapabilityMissing, EndpointError, TrafficRefused
from fidelity.probes.wordlists import PEOPLE, QUALITIES, THINGS
from fidelity.triage.answers import ONLY_STREAMED, Answer, Answered, Case, says
from fidelity.triage.conversation import text_of
from fidelity.triage.desk import Spent, Tally
from fidelity.triage.elsewhere import hop, stock
from fidelity.triage.judge import names
from fidelity.triage.lengths import LENGTHS, length, of_same_residue
from fidelity.triage.pieces import filler, lengthened, of_blocks, salted
from fidelity.triage.rendering import rendering
from fidelity.words import Traffic

Ask = Callable[[Case], Awaitable[Answer]]


async def ask_all(case: Case) -> list[Answer]:
    """Ask every question in order; those that the bound left unasked say so."""
    answers: list[Answer] = []
    questions: Sequence[tuple[str, str, Ask]] = (
        ("rendering", "does every turn stand in the rendered prompt?", rendering),
        ("stream", "does it fail streamed as in one piece?", stream),
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
            answer = says(Answered.NOT_ASKED, "the bound on requests is reached")
        except (EndpointError, CapabilityMissing, TrafficRefused) as error:
            answer = says(Answered.OPEN, f"it could not be asked: {error}")
        answers.append(
            replace(answer, name=name, asked=asked, requests=case.desk.requests - before)
        )
    return answers


async def stream(case: Case) -> Answer:
    """Ask for the answer as it fails, and the other way: what is generated is the same."""
    here, other = Tally(), Tally()
    there = replace(case.smallest, stream=not case.smallest.stream)
    for _ in range(max(2, case.repeats)):
        here.tries.append(await case.desk.try_once("stream", case.smallest, mode=case.mode))
        other.tries.append(await case.desk.try_once("stream", there, mode=case.mode))
    streamed, whole = (here, other) if case.smallest.stream else (other, here)
    words = f"streamed {streamed.words}, in one piece {whole.words}"
    tries = [*here.tries, *other.tries]
    if min(here.judged, other.judged) < 2:
        return says(Answered.OPEN, words, tries)
    if here.always and other.never:
        only = ONLY_STREAMED if case.smallest.stream else "only in one piece"
        return says(Answered.POINTS, f"{only}: {words}", tries)
    if here.failed and other.failed:
        return says(Answered.CLEARED, f"yes: {words}", tries)
    return says(Answered.OPEN, words, tries)


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
            fresh = await of_same_residue(case, salted(case.smallest, _salt()))
        first.tries.append(await case.desk.try_once("cold", fresh, mode=case.mode))
        second.tries.append(await case.desk.try_once("cold", fresh, mode=case.mode))
    how = "flushed" if flushed else "cold"
    words = f"{how} {first.words}, again {second.words} ({_hits(second)})"
    tries = [*first.tries, *second.tries]
    if not first.judged or not second.judged:
        return says(Answered.OPEN, words, tries)
    if first.never and second.failed > 1:
        return says(Answered.POINTS, f"only from the cache: {words}", tries)
    if first.never and second.never:
        if flushed:
            return says(Answered.POINTS, f"only before the cache was flushed: {words}", tries)
        return says(
            Answered.OPEN, f"with neither, once other words stand before it: {words}", tries
        )
    return says(Answered.CLEARED, f"yes: {words}", tries)


def _hits(second: Tally) -> str:
    hits = [one.reply.cached_tokens for one in second.tries if one.reply is not None]
    if not hits or any(hit is None for hit in hits):
        return "the server does not tell cached tokens"
    if not any(hits):
        return "nothing came from a cache the second time either"
    return f"up to {max(hit or 0 for hit in hits)} tokens came from the cache"


def _salt() -> str:
    """Return a few words whose like no server has seen; letters only, since codes are digits."""
    words = [secrets.choice((*PEOPLE, *QUALITIES, *THINGS)) for _ in range(5)]
    return f"Note {' '.join(words)}."


async def short(case: Case) -> Answer:
    """Say it all in one message, at neighbouring lengths: can this model answer it at all?"""
    chat = case.smallest
    if not case.facts:
        return says(Answered.NOT_ASKED, "it needs --expect with a text that the chat tells")
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
        return says(Answered.CLEARED, f"yes: {words_}, so that the model can", tally.tries)
    if tally.always:
        return says(Answered.POINTS, f"no: {words_}", tally.tries)
    return says(Answered.OPEN, f"at some lengths: {words_}", tally.tries)


async def reasoning(case: Case) -> Answer:
    """Ask with reasoning switched on and off, at neighbouring lengths: the switch changes those."""
    if not case.deployment.capabilities.has("reasoning"):
        return says(Answered.NOT_ASKED, "the server shows no reasoning")
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
        return says(Answered.POINTS, f"no: {words}", tries)
    if on.failed and off.failed:
        return says(Answered.CLEARED, f"yes: {words}", tries)
    return says(Answered.OPEN, words, tries)
