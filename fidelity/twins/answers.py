"""Replies as tokens with their logprobs, named alike whichever shape the server told them in.

The older completions API names alternatives by their text, logprobs of given text by their ids:
what one reply of a trial tells both of (text and id) names the tokens of all of them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fidelity.errors import EndpointError
from fidelity.statistics.divergence import ScoredToken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fidelity.endpoint.replies import Reply, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What one arm was answered.

    Attributes:
        reply: the answer itself.
        given_from: None for generated tokens; otherwise the arm is the given text from there on.
    """

    reply: Reply
    given_from: int | None = None


@dataclass(slots=True)
class Names:
    """Ids of token texts, learned from the replies of one trial."""

    ids: dict[str, int] = field(default_factory=dict)

    def learn(self, replies: Iterable[Reply]) -> None:
        """Take every text whose id is told."""
        for reply in replies:
            for at, entry in enumerate(reply.logprobs or ()):
                known = entry.token_id
                if known is None and reply.token_ids is not None and at < len(reply.token_ids):
                    known = reply.token_ids[at]
                self._learn(entry, known)
            for given in reply.prompt_logprobs or ():
                if given is not None:
                    self._learn(given, given.token_id)

    def _learn(self, entry: TokenLogprob, token_id: int | None) -> None:
        if token_id is not None:
            self.ids.setdefault(entry.token, token_id)
        for top in entry.top:
            if top.token_id is not None:
                self.ids.setdefault(top.token, top.token_id)

    def of(self, text: str) -> int:
        """Return the id of a token's text; a number of its own, below 0, where nobody tells."""
        return self.ids.get(text, -1 - zlib.crc32(text.encode("utf-8", "replace")))


def tokens_of(heard: Heard, names: Names) -> tuple[ScoredToken, ...]:
    """Return the tokens of an arm with their logprobs.

    Raises:
        EndpointError: logprobs were asked for and are not there, one for each token.
    """
    reply = heard.reply
    if heard.given_from is not None:
        return _given(reply, heard.given_from, names)
    entries = reply.logprobs
    if entries is None:
        raise EndpointError("logprobs were asked for, and the answer has none")
    ids = reply.token_ids
    if ids is not None and len(ids) != len(entries):
        raise EndpointError(f"the answer has {len(ids)} token ids and {len(entries)} logprobs")
    return tuple(
        _token(entry, names, entry.token_id if ids is None else ids[at])
        for at, entry in enumerate(entries)
    )


def _given(reply: Reply, start: int, names: Names) -> tuple[ScoredToken, ...]:
    entries: Sequence[TokenLogprob | None] = reply.prompt_logprobs or ()
    wanted = entries[start:]
    if not wanted or any(entry is None for entry in wanted):
        raise EndpointError(f"no logprobs of the given text from token {start} on in the answer")
    return tuple(_token(entry, names, entry.token_id) for entry in wanted if entry is not None)


def _token(entry: TokenLogprob, names: Names, token_id: int | None) -> ScoredToken:
    if entry.logprob is None:
        raise EndpointError(f"the token {entry.token[:40]!r} has no logprob")
    top = tuple(
        (names.of(each.token) if each.token_id is None else each.token_id, each.logprob)
        for each in entry.top
    )
    return ScoredToken(names.of(entry.token) if token_id is None else token_id, entry.logprob, top)
