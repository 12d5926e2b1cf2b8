"""Does it fail elsewhere: at another hop, on a stock deployment? Asked of both, at many lengths.

A single prompt tells nothing: it was chosen since it fails here, and where two answers are close,
rounding alone decides between them, the same way each time. So both servers are asked the same
chats of eight other lengths, and a sign test decides over those that one fails and the other not.
"""

from collections.abc import Mapping, Sequence

from fidelity.deployment.deployment import Deployment
from fidelity.endpoint.client import Client
from fidelity.errors import EndpointError
from fidelity.statistics.paired import sign_test_worse
from fidelity.triage.answers import Answer, Answered, Case, says
from fidelity.triage.conversation import Conversation
from fidelity.triage.desk import Tally
from fidelity.triage.lengths import LENGTHS, MODULI, of_same_residue
from fidelity.triage.pieces import lengthened

_LEVEL = 0.05
"""Chance of accusing one of two servers that fail alike, over all that are asked."""


async def hop(case: Case) -> Answer:
    """Ask the workers behind the router, or what else was named."""
    if not case.hops:
        return says(Answered.NOT_ASKED, "no other hop is known: --hop URL, or roles in the file")
    return await _elsewhere(case, "hop", case.hops, elsewhere="there")


async def stock(case: Case) -> Answer:
    """Ask a deployment that has none of the patches."""
    if not case.stock:
        return says(Answered.NOT_ASKED, "no stock deployment is named: --stock NAME_OR_URL")
    return await _elsewhere(case, "stock", case.stock, elsewhere="on stock")


async def _elsewhere(
    case: Case, name: str, others: Mapping[str, Deployment | str], *, elsewhere: str
) -> Answer:
    chats = await _longer(case)
    here: Tally | None = None
    said: list[str] = []
    asked: list[Tally] = []
    for other, deployment in others.items():
        if isinstance(deployment, str):
            said.append(f"{other} does not answer ({deployment[:160]})")
            continue
        try:
            there = await _each(case, name, chats, deployment.client)
        except EndpointError as error:
            said.append(f"{other} does not answer ({str(error)[:160]})")
            continue
        here = here or await _each(case, name, chats, case.desk.client)
        said.append(f"{other}: here {here.words}, there {there.words}, at as many lengths")
        asked.append(there)
    words = "; ".join(said)
    if here is None:
        return says(Answered.OPEN, words)
    tries = [*here.tries, *(one for tally in asked for one in tally.tries)]
    if any(_worse(here, there) <= _LEVEL / len(asked) for there in asked):
        return says(Answered.POINTS, f"only here, not {elsewhere}: {words}", tries)
    if all(_alike(here, there) for there in asked):
        return says(Answered.CLEARED, f"yes: {words}", tries)
    return says(Answered.OPEN, words, tries)


async def _longer(case: Case) -> list[Conversation]:
    """Return the smallest chat at other lengths, all of its residue: each 16 words longer."""
    steps = range(2 * MODULI[-1], 2 * MODULI[-1] * (LENGTHS + 1), 2 * MODULI[-1])
    return [await of_same_residue(case, lengthened(case.smallest, step)) for step in steps]


async def _each(case: Case, name: str, chats: Sequence[Conversation], client: Client) -> Tally:
    tries = [await case.desk.try_once(name, c, mode=case.mode, client=client) for c in chats]
    return Tally(tries=tries)


def _worse(here: Tally, there: Tally) -> float:
    """Return the chance of so many chats that fail here alone, were both servers alike."""
    pairs = [
        (one.failed, other.failed)
        for one, other in zip(here.tries, there.tries, strict=True)
        if one.failed is not None and other.failed is not None and one.failed != other.failed
    ]
    only_here = sum(bool(failed) for failed, _ in pairs)
    return sign_test_worse(only_here, len(pairs) - only_here)


def _alike(here: Tally, there: Tally) -> bool:
    """Tell whether most chats fail there, and no fewer than here."""
    return 2 * there.failed > there.judged and there.failed >= here.failed
