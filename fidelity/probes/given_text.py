"""Text that we give and the server scores: its token ids, and the logprob of each of them.

Given text bypasses prefix caches and costs a server memory for every scored position, so only the
span that is needed is asked for, below the cap of `endpoint.caps`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fidelity.errors import CapabilityMissing, EndpointError
from fidelity.statistics.divergence import ScoredToken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fidelity.endpoint.client import Client
    from fidelity.endpoint.replies import TokenLogprob
    from fidelity.probes.probe import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenText:
    """Token ids to be scored.

    Attributes:
        ids: of the whole text; never empty.
        answer_at: position of the answer's first token; the answer ends the text.
    """

    ids: tuple[int, ...]
    answer_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenToken:
    """What a server says of one given token; `text` is "" where it tells ids only."""

    token_id: int
    text: str
    logprob: float
    top: tuple[tuple[int | None, str, float], ...] = ()

    def scored(self, *, by_text: bool = False) -> ScoredToken:
        """Return the token for a comparison; by text where a server tells no ids."""
        if not by_text:
            top = tuple((i, value) for i, _, value in self.top if i is not None)
            return ScoredToken(self.token_id, self.logprob, top)
        return ScoredToken(
            _number(self.text),
            self.logprob,
            tuple((_number(text), value) for _, text, value in self.top),
        )

    @property
    def tells_ids(self) -> bool:
        """True when every alternative has its id."""
        return all(identity is not None for identity, _, _ in self.top)


async def rendered(client: Client, messages: Sequence[Mapping[str, Any]], answer: str) -> GivenText:
    """Return a chat prompt as the server renders it, followed by the answer's tokens.

    Raises:
        CapabilityMissing: the server has no tokenizer that gives ids.
        EndpointError: it did not answer.
    """
    prompt = (await client.tokenize(messages)).tokens
    told = (await client.tokenize(prompt=answer)).tokens
    if not prompt or not told:
        raise CapabilityMissing("the tokenizer endpoint counts, and tells no token ids")
    return GivenText(ids=(*prompt, *told), answer_at=len(prompt))


async def score(
    ask: Ask, ids: Sequence[int], *, start: int = 1, tops: int = 0, label: str = ""
) -> list[GivenToken]:
    """Return what the server says of the tokens from `start` on.

    Servers without logprobs of given text are asked to echo it with logprobs, which is the same.

    Args:
        ask: of the probe; the exchange is kept in it.
        ids: of the whole text.
        start: first position that is wanted, >= 1: the first token follows nothing.
        tops: alternatives at each position.
        label: of the exchange.

    Raises:
        EndpointError: a position is missing, has no finite logprob, or that of another token.
    """
    if ask.client.server.dialect.prompt_logprobs_field is not None:
        reply = await ask.complete(
            ids,
            label=label,
            max_tokens=1,
            temperature=0.0,
            stream=False,
            prompt_logprobs=max(1, tops),
            prompt_logprobs_start=start,
        )
        entries = reply.prompt_logprobs
    else:
        reply = await ask.complete(
            ids,
            label=label,
            max_tokens=1,
            temperature=0.0,
            stream=False,
            top_logprobs=max(1, tops),
            echo=True,
        )
        entries = None if reply.logprobs is None else reply.logprobs[: len(ids)]
    if entries is None or len(entries) != len(ids):
        found = "none" if entries is None else str(len(entries))
        raise EndpointError(
            f"logprobs of {len(ids)} given tokens were asked for, and there are {found}"
        )
    return [_given(place, ids[place], entries[place]) for place in range(start, len(ids))]


def generated(token: TokenLogprob) -> ScoredToken:
    """Return a token that a server made, for a comparison by text.

    Raises:
        EndpointError: its logprob is not told, or is not finite.
    """
    if token.logprob is None or not math.isfinite(token.logprob):
        raise EndpointError(
            f"the token {token.token!r} of an answer has the logprob {token.logprob}"
        )
    return ScoredToken(
        _number(token.token),
        token.logprob,
        tuple((_number(top.token), top.logprob) for top in token.top),
    )


def _given(place: int, token_id: int, entry: TokenLogprob | None) -> GivenToken:
    if entry is None or entry.logprob is None:
        raise EndpointError(f"position {place} of a given text has no logprob")
    if not math.isfinite(entry.logprob):
        raise EndpointError(f"position {place} of a given text has the logprob {entry.logprob}")
    if entry.token_id not in {None, token_id}:
        raise EndpointError(
            f"position {place} of a given text holds token {token_id}, and has the logprob of"
            f" {entry.token_id}"
        )
    return GivenToken(
        token_id=token_id,
        text=entry.token,
        logprob=entry.logprob,
        top=tuple((top.token_id, top.token, top.logprob) for top in entry.top),
    )


def _number(text: str) -> int:
    """Return a number that stands for a token's text; 56 bits, so that two texts never meet."""
    return int.from_bytes(hashlib.blake2s(text.encode("utf-8", "replace"), digest_size=7).digest())
