"""Does every turn stand in the rendered prompt? Told by token counts, and by the prompt itself.

A text is replaced by another where it stands, and the prompt must change by as much as the texts
differ. Messages never go: a template that finds no system message writes its own, and one that
finds two turns of one role refuses them. What a template may drop, earlier reasoning, counts not.
"""

from collections.abc import Sequence

from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.probes.accounting import too_short
from fidelity.probes.scoring import names_words
from fidelity.triage.answers import Answer, Answered, Case, says
from fidelity.triage.conversation import Message, rendered_text_of, text_of
from fidelity.triage.counting import Counter
from fidelity.triage.desk import Try
from fidelity.triage.judge import names
from fidelity.triage.pieces import ACKNOWLEDGEMENT, filler, with_text

MOST_TEXTS = 16
"""Of a chat with more, those that hold a fact count, and the first and the last ones."""
_FEWEST_TOKENS = 3
"""Two texts that differ by fewer say nothing: marks beside a text may join with it."""
_LEAST_SHARE = 0.5
"""A text may be trimmed or escaped by its template; one that is there is not halved."""
_SHARE_KEPT = 0.9
"""Of all text; a tokenizer may count a mark of its own with each, and templates trim."""
_GROWN_STEPS = 24
_LONG_CHARS = 4_000


async def rendering(case: Case) -> Answer:
    """Replace each text by another: the prompt must change by it. Then look at the prompt."""
    chat = case.smallest
    ids = case.deployment.capabilities.has("token_ids")
    whole = await case.desk.try_once("rendering", chat, answer_tokens=1, return_token_ids=ids)
    if whole.prompt_tokens is None:
        return says(Answered.OPEN, "the server tells no prompt tokens", [whole])
    if any(_stands_in_reasoning_alone(case, fact) for fact in case.facts):
        words = "what is expected stands only in earlier reasoning, which templates drop"
        return says(Answered.OPEN, words, [whole])
    counter = Counter(case, [whole])
    dense = too_short(
        [{"content": rendered_text_of(m)} for m in chat.messages], whole.prompt_tokens
    )
    if dense and (needed := await counter.by_tokenizer(_sure(chat.messages))) is not None:
        if whole.prompt_tokens < _SHARE_KEPT * needed:
            return says(
                Answered.POINTS,
                f"no: {whole.prompt_tokens} prompt tokens cannot hold its {needed} tokens of text",
                counter.tries,
            )
        dense = False
    return await _by_text(case, whole, counter, dense=dense)


async def _by_text(case: Case, whole: Try, counter: Counter, *, dense: bool) -> Answer:
    chat, tokens = case.smallest, whole.prompt_tokens or 0
    said, doubts = [], []
    for at in _worth_counting(case):
        message = chat.messages[at]
        change = await _change(case, counter, at, tokens)
        if change is None:
            continue
        found, right = change
        name = f"message {at + 1} of {len(chat.messages)} ({message['role']})"
        if found >= _LEAST_SHARE * right:
            said.append(f"message {at + 1} adds {found}")
            continue
        words = f"{name} adds {found} tokens of {right} in a prompt of {tokens}"
        if message["role"] != "assistant" or _holds_fact(case, message):
            return says(Answered.POINTS, f"no: {words}", counter.tries)
        doubts.append(words)
    seen = await _in_the_text(case, whole)
    if seen is not None and not seen:
        words = f"no: the rendered prompt of {tokens} tokens lacks its text"
        return says(Answered.POINTS, words, counter.tries)
    if doubts and not case.facts:
        words = f"{doubts[0]}: an answer, which a template may shorten"
        return says(Answered.OPEN, words, counter.tries)
    if dense and not seen:
        words = f"{tokens} prompt tokens hold its {chat.characters:,} characters only if they are"
        return says(Answered.OPEN, f"{words} no plain text", counter.tries)
    if not said and seen is None:
        words = "there is nothing before the question to be counted"
        return says(Answered.OPEN, words, counter.tries)
    words = f"yes: of {tokens} prompt tokens {', '.join(said)}" if said else f"yes: {tokens} tokens"
    words += "; its text stands in the rendered prompt" if seen else ""
    words += f"; but {doubts[0]}" if doubts else ""
    return says(Answered.CLEARED, words, counter.tries)


async def _change(case: Case, counter: Counter, at: int, tokens: int) -> tuple[int, int] | None:
    """Return by how many tokens the prompt changes with a text, and by how many it should.

    The text is replaced by one word; where it is hardly longer itself, it is lengthened instead.
    None where nobody counts.
    """
    text = rendered_text_of(case.smallest.messages[at])
    for other in (ACKNOWLEDGEMENT, text + filler(_GROWN_STEPS)):
        right = await counter.difference(text, other)
        if right is None or abs(right) < _FEWEST_TOKENS:
            continue
        one = await case.desk.try_once(
            "rendering", with_text(case.smallest, at, other), answer_tokens=1
        )
        counter.tries.append(one)
        if one.prompt_tokens is None:
            return None
        found = tokens - one.prompt_tokens
        return (found, right) if right > 0 else (-found, -right)
    return None


def _worth_counting(case: Case) -> list[int]:
    """Return where texts stand that are counted; short answers say nothing."""
    context = case.smallest.context
    places = [
        at
        for at, message in enumerate(context)
        if (text := rendered_text_of(message)).strip()
        and (message["role"] != "assistant" or len(text) > len(ACKNOWLEDGEMENT))
    ]
    if len(places) <= MOST_TEXTS:
        return places
    half = MOST_TEXTS // 2
    facts = [at for at in places if _holds_fact(case, context[at])]
    return sorted({*facts[:half], *places[: half // 2], *places[-half // 2 :]})


def _holds_fact(case: Case, message: Message) -> bool:
    return any(names(rendered_text_of(message), fact) for fact in case.facts)


def _stands_in_reasoning_alone(case: Case, fact: str) -> bool:
    context = case.smallest.context
    return any(names(text_of(m), fact) for m in context) and not any(
        names(rendered_text_of(m), fact) for m in context
    )


def _sure(messages: Sequence[Message]) -> list[str]:
    """Return the texts that every template renders."""
    return [rendered_text_of(m) for m in messages if m["role"] != "assistant"]


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
    if case.facts:
        return all(names(text, fact) for fact in case.facts)
    told = [line for line in _sure(case.smallest.context) if line.strip()]
    return all(names_words(text, line[:_LONG_CHARS]) for line in told)
