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
    """Ids of token texts, learned from the replies of one trial.

    A text that several ids have (a part of a character is often one) names none of them.
    """

    ids: dict[str, int] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)

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
        told = [(entry.token, token_id), *((top.token, top.token_id) for top in entry.top)]
        for text, known in told:
            if known is not None and self.ids.setdefault(text, known) != known:
                self.shared.add(text)

    def of(self, text: str) -> int:
        """Return the id of a token's text; a number of its own, below 0, where nobody tells."""
        known = None if text in self.shared else self.ids.get(text)
        return -1 - zlib.crc32(text.encode("utf-8", "replace")) if known is None else known


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
    chosen = names.of(entry.token) if token_id is None else token_id
    top: dict[int, float] = {}
    for each in entry.top:
        found = names.of(each.token) if each.token_id is None else each.token_id
        if found == chosen and each.logprob == entry.logprob:
            continue
        while found in top or found == chosen:  # another token of the same text
            found = -1 - abs(found) - 1
        top[found] = each.logprob
    return ScoredToken(chosen, entry.logprob, ((chosen, entry.logprob), *top.items()))
