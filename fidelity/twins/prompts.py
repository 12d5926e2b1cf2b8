"""Prompts of exact length that ask for one fact, and the same prompts with one token altered.

The answer depends on one place of the context: a state that is lost there changes it at once. The
first digit of the fact is the token that a positive control alters, so that the arms must part
in the answer, at its first token where the model answers at once.
"""

from __future__ import annotations

import random
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.endpoint.client import Client
from fidelity.errors import EndpointError
from fidelity.probes import needles
from fidelity.probes.calibration import counter_of
from fidelity.probes.dialogue import user
from fidelity.probes.haystack import Placed, Size, haystack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.probes.probe import Ask
    from fidelity.twins.plans import Plan
    from fidelity.twins.room import Room

Messages = list[dict[str, str]]

_BARE_TOKENS = 76
_LINE_TOKENS = 15
"""First guesses, in the embedded model's vocabulary: a prompt without filler, a line of it."""
_BOOK_TOKENS, _FACT_TOKENS, _CODE_TOKENS, _QUESTION_TOKENS = 10, 24, 8, 36
"""Around the number, the fact and the question, where nothing is cut, in any vocabulary."""
_heads: weakref.WeakKeyDictionary[Client, int] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt in both shapes.

    Attributes:
        messages: as chat.
        altered: the same with the first digit of the fact changed.
        ids: the rendered messages as token ids; None where the server takes none.
        altered_ids: of `altered`, where that was asked for; it differs from `ids` in one place.
        head: tokens that every prompt of this deployment begins with.
        length: in tokens; an estimate without ids.
    """

    messages: Messages
    altered: Messages
    ids: tuple[int, ...] | None
    altered_ids: tuple[int, ...] | None
    head: int
    length: int

    @property
    def shared(self) -> int:
        """Most tokens that a new prompt may find in a cache that matches single tokens.

        Book numbers are random, and two of them may begin with the same digits.
        """
        return self.head + _BOOK_TOKENS


async def prompt_of(
    ask: Ask, room: Room, plan: Plan, *, salt: str, altered: bool = False
) -> Prompt:
    """Return the prompt of a plan; `salt` changes its first line, so that no cache knows it.

    Args:
        ask: of the trial.
        room: the server.
        plan: seed, length and depth.
        salt: of the first line.
        altered: also make the prompt with the altered token: only a control needs it.

    Raises:
        EndpointError: the server cannot say what it makes of the messages.
    """
    text = _Text(plan, salt)
    if not room.by_ids:
        return await _as_chat(ask, plan, text)
    lines = max(0, plan.length - _BARE_TOKENS) // _LINE_TOKENS + 1
    while True:
        ids = await rendered_ids(ask, room, text.render(lines))
        if len(ids) >= plan.length:
            break
        lines += (plan.length - len(ids)) // _LINE_TOKENS + 1
    other_ids = ids
    if altered:
        other_ids = await rendered_ids(ask, room, text.render(lines, altered=True))
    head = await _head_of(ask, room, text)
    if not _tokenizes(ask):  # asking for the ids has put the prompt into the cache
        book = await rendered_ids(ask, room, text.render(lines, number=text.number + 111_111))
        ids, other_ids = _never_sent(ids, book), _never_sent(other_ids, book)
    if len(ids) != len(other_ids):
        raise EndpointError("two digits take different numbers of tokens: nothing can be altered")
    fact = common(ids, other_ids) if altered else _about(ids, head, plan.depth_frac)
    cut = _cut(ids, fact=fact, head=head, length=plan.length)
    return Prompt(
        messages=text.render(lines),
        altered=text.render(lines, altered=True),
        ids=(*ids[: cut.start], *ids[cut.stop :]),
        altered_ids=(*other_ids[: cut.start], *other_ids[cut.stop :]),
        head=head,
        length=len(ids) - len(cut),
    )


class _Text:
    """The texts of one plan: a book's number, lines of filler with one fact, a question."""

    def __init__(self, plan: Plan, salt: str) -> None:
        draw = random.Random(f"twin prompt {plan.seed}")  # noqa: S311 - prompts, not secrets
        self.plan = plan
        self.name, self.code = needles.draw_name(draw), needles.draw_code(draw)
        self.other = str(1 + (int(self.code[0]) + draw.randint(0, 7)) % 9) + self.code[1:]
        book = random.Random(f"twin book {plan.seed} {salt}")  # noqa: S311 - no secret
        self.number = book.randint(100_000, 499_999)

    def render(self, lines: int, *, altered: bool = False, number: int | None = None) -> Messages:
        """Return the messages with that many lines of filler."""
        told = needles.tell(self.name, self.other if altered else self.code)
        placed = [Placed(sentence=told, depth_frac=self.plan.depth_frac)]
        text = haystack(f"twin {self.plan.seed}", Size(lines=lines), placed)
        book = self.number if number is None else number
        return [user(f"Log book {book}.\n{text}\n{needles.ask(self.name)}")]


async def _as_chat(ask: Ask, plan: Plan, text: _Text) -> Prompt:
    lines = max(0, plan.length - _BARE_TOKENS) // _LINE_TOKENS
    messages = text.render(lines)
    counted = await counter_of(ask.client).count(messages)
    return Prompt(
        messages=messages,
        altered=text.render(lines, altered=True),
        ids=None,
        altered_ids=None,
        head=0,
        length=counted.tokens,
    )


async def _head_of(ask: Ask, room: Room, text: _Text) -> int:
    """Return how many tokens all prompts of this deployment begin with; asked once."""
    if ask.client not in _heads:
        one, other = [
            await rendered_ids(ask, room, text.render(0, number=number))
            for number in (100_000, 999_999)
        ]
        _heads[ask.client] = common(one, other)
    return _heads[ask.client]


def _about(ids: Sequence[int], head: int, depth_frac: float) -> int:
    """Return about where the fact stands; a cut into it costs an answer, and no comparison."""
    return head + _BOOK_TOKENS + round((len(ids) - head - _QUESTION_TOKENS) * depth_frac)


def _cut(ids: Sequence[int], *, fact: int, head: int, length: int) -> range:
    """Return the places to leave out for a prompt of `length`: filler, away from the fact."""
    excess = len(ids) - length
    before = range(head + _BOOK_TOKENS, fact - _FACT_TOKENS)
    behind = range(fact + _CODE_TOKENS, len(ids) - _QUESTION_TOKENS)
    room = max(before, behind, key=len)
    return range(room.start, room.start + min(excess, len(room)))


async def rendered_ids(ask: Ask, room: Room, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
    """Return what the server's template makes of messages, as token ids.

    Raises:
        EndpointError: neither its tokenizer nor its answers tell.
    """
    if _tokenizes(ask):
        tokenized = await ask.client.tokenize(messages, thinking=room.thinking)
        if tokenized.tokens is not None:
            return tokenized.tokens
    if room.has_ids:
        reply = await ask.chat(
            messages,
            label="read the ids",
            max_tokens=1,
            return_token_ids=True,
            thinking=room.thinking,
        )
        if reply.prompt_token_ids is not None:
            return reply.prompt_token_ids
    raise EndpointError("the server tells the token ids of a prompt neither when asked nor after")


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many first tokens two prompts share."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _tokenizes(ask: Ask) -> bool:
    server = ask.client.server
    return bool(server.dialect.tokenize_path) and not server.tokenizer_distrust


def _never_sent(ids: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return a prompt whose book number is neither this one's nor the other's."""
    at = common(ids, other)
    swapped = sorted(set(other[at : at + 6]) ^ set(ids[at : at + 6]))
    return (*ids[:at], *swapped[-1:], *ids[at + 1 :]) if len(swapped) > 2 else ids
