"""Does it fail at every length? A fault of one residue shows itself when the chat grows."""

from collections.abc import Sequence

from fidelity.errors import CapabilityMissing
from fidelity.triage.answers import Answer, Answered, Case, says
from fidelity.triage.conversation import Conversation
from fidelity.triage.desk import Desk, Try
from fidelity.triage.pieces import lengthened

LENGTHS = 8
MODULI = (2, 4, 8, 16)


async def length(case: Case) -> Answer:
    """Lengthen the chat word by word: a fault of one residue shows itself."""
    seen, tries = await lengths(case.desk, case.smallest)
    if not seen:
        return says(Answered.OPEN, "no answer could be judged", tries)
    failing = sorted({tokens for tokens, failed in seen if failed})
    shown = f"{sum(f for _, f in seen)} of {len(seen)} fail at {min(t for t, _ in seen)} to"
    shown += f" {max(t for t, _ in seen)} tokens"
    if all(failed for _, failed in seen):
        return says(Answered.CLEARED, f"yes: {shown}", tries)
    if not failing:
        return says(Answered.OPEN, f"no: {shown}; none of them greedily", tries)
    residue = residue_of(seen)
    if residue is None:
        listed = ", ".join(map(str, failing))
        return says(Answered.OPEN, f"no: {shown} ({listed}), by no plain rule", tries)
    return says(
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
    for modulus in MODULI:
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


async def of_same_residue(case: Case, chat: Conversation) -> Conversation:
    """Return the chat, some words longer, so that its length differs by a multiple of 16.

    It differs so from the smallest chat: a fault of one residue would else vanish for a reason
    that has nothing to do with what was changed.
    """
    try:
        wanted = await counted(case.desk, case.smallest)
        return await of_residue(case.desk, chat, (wanted, MODULI[-1]))
    except CapabilityMissing:
        return chat
