"""Does every turn stand in the rendered prompt? Told by token counts, and by the prompt itself."""

from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.probes.accounting import too_short
from fidelity.probes.scoring import names_words
from fidelity.triage.answers import Answer, Answered, Case, says
from fidelity.triage.conversation import text_of
from fidelity.triage.desk import Try
from fidelity.triage.judge import names
from fidelity.triage.pieces import of_blocks, taken_apart

MOST_CHARS_PER_TOKEN = 9
_LONG_CHARS = 4_000


async def rendering(case: Case) -> Answer:
    """Leave each turn out: the prompt must get shorter by it. Then look at the prompt itself."""
    desk, chat = case.desk, case.smallest
    ids = case.deployment.capabilities.has("token_ids")
    whole = await desk.try_once("rendering", chat, answer_tokens=1, return_token_ids=ids)
    tokens = whole.prompt_tokens
    if tokens is None:
        return says(Answered.OPEN, "the server tells no prompt tokens", [whole])
    if too_short(chat.messages, tokens):
        characters = chat.characters
        return says(
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
            return says(
                Answered.POINTS,
                f"no: turn {at} of {chat.turns} ({characters} characters) adds {grown} tokens to a"
                f" prompt of {tokens}",
                tries,
            )
        said.append(f"turn {at} adds {grown}")
    seen = await _in_the_text(case, whole)
    if seen is not None and not seen:
        return says(
            Answered.POINTS, f"no: the rendered prompt of {tokens} tokens lacks its text", tries
        )
    if not said and seen is None:
        return says(Answered.OPEN, "there is nothing before the question to be counted", tries)
    words = f"yes: of {tokens} prompt tokens {', '.join(said)}" if said else f"yes: {tokens} tokens"
    return says(
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
