"""Sends replays one after the other, within a bound, and keeps each as a trial of the journal."""

import hashlib
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from fidelity.config.redaction import Redactor
from fidelity.endpoint.client import Client
from fidelity.endpoint.replies import Reply
from fidelity.errors import EndpointError, TrafficRefused
from fidelity.probes.probe import excerpt, excerpt_messages, exchange_of
from fidelity.records import Exchange, Trial
from fidelity.runs.journal import Journal
from fidelity.triage.conversation import SAMPLING, Conversation
from fidelity.triage.judge import Judge, Judged
from fidelity.words import Score

REASONING_TOKENS = 4_096
"""For an answer that was cut before it said anything."""
_MORE_ROOM = 4
"""Times as many tokens for an answer that was cut while it spoke."""
_FOR_QUESTIONS = 80
_REFUSED = frozenset({400, 404, 413, 422})
"""Of a chat that this server does not take: two turns of one role, a context that is too long."""


class Mode(StrEnum):
    """How an answer is drawn."""

    GREEDY = "greedy"
    SAMPLED = "as sampled"


class Spent(Exception):
    """The bound on requests or seconds is reached; what was found so far counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One replay.

    Attributes:
        failed: None where the answer says nothing, or the server refused the chat.
        why: what was seen.
        reply: None where the server refused.
        trial: id in the journal.
    """

    failed: bool | None
    why: str
    reply: Reply | None
    trial: str

    @property
    def prompt_tokens(self) -> int | None:
        """Of the request, as usage tells."""
        return self.reply.prompt_tokens if self.reply is not None else None


@dataclass(slots=True, kw_only=True)
class Tally:
    """How many of several tries failed."""

    tries: list[Try] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Number of failures."""
        return sum(bool(one.failed) for one in self.tries)

    @property
    def judged(self) -> int:
        """Number of tries that say something."""
        return sum(one.failed is not None for one in self.tries)

    @property
    def words(self) -> str:
        """Return "k of n fail"."""
        return f"{self.failed} of {self.judged} fail"

    @property
    def always(self) -> bool:
        """True when every one failed."""
        return self.judged > 0 and self.failed == self.judged

    @property
    def never(self) -> bool:
        """True when some were judged and none failed."""
        return self.judged > 0 and self.failed == 0


class Desk:
    """Replays chats on one server or several; for one event loop."""

    def __init__(
        self,
        client: Client,
        judge: Judge,
        *,
        journal: Journal,
        redactor: Redactor,
        most_requests: int,
        most_seconds: float,
        seed: int,
        seeded: bool = True,
    ) -> None:
        """Send nothing yet; `seeded`: the server takes a seed."""
        self._seeded = seeded
        self.client = client
        self.judge = judge
        self._journal = journal
        self._redactor = redactor
        self._most = most_requests
        self._deadline = time.monotonic() + most_seconds
        self._seed = seed
        self.requests = 0
        self.room = 0
        """Tokens that an answer needed which was cut; later ones have them from the start."""
        self._reserved = 0

    def reserve(self) -> None:
        """Keep requests for later questions; what is asked until `release` stops before them."""
        self._reserved = min(_FOR_QUESTIONS, (self._most - self.requests) // 2)

    def release(self) -> None:
        """Let everything be asked that the bound allows."""
        self._reserved = 0

    async def try_once(
        self,
        question: str,
        conversation: Conversation,
        *,
        mode: Mode = Mode.GREEDY,
        client: Client | None = None,
        thinking: bool | None = None,
        answer_tokens: int | None = None,
        return_token_ids: bool = False,
    ) -> Try:
        """Replay a chat once and judge the answer; one that was cut is asked again with room.

        Args:
            question: that this replay helps to answer; claim of the trial.
            conversation: to send.
            mode: greedy, or with the conversation's own sampling.
            client: of another server.
            thinking: reasoning on or off; None leaves it as it is.
            answer_tokens: in place of the conversation's own limit.
            return_token_ids: of the prompt.

        Raises:
            Spent: the bound is reached; nothing was sent.
            EndpointError: infrastructure trouble; the trial is kept.
        """
        exchanges: list[Exchange] = []
        reply: Reply | None = None
        limit = answer_tokens or max(conversation.max_tokens, self.room)
        judged = Judged(failed=None, why="", score=Score.CUT)
        try:
            while True:
                reply = await self._send(
                    client or self.client,
                    conversation,
                    mode=mode,
                    max_tokens=limit,
                    thinking=thinking,
                    return_token_ids=return_token_ids,
                )
                exchanges.append(exchange_of(reply, label=question, messages=conversation.messages))
                judged = self._judged(reply)
                if judged.score is not Score.CUT or answer_tokens is not None:
                    break
                if len(exchanges) > 1:
                    judged = _cut_again(judged, reply)
                    break
                limit = self.room = _more_room(reply, limit)
        except TrafficRefused as cap:  # of the run as a whole, which binds like our own
            raise Spent(str(cap)) from cap
        except EndpointError as error:
            exchanges.append(_failed_exchange(conversation, question, error))
            self._keep(question, conversation, mode, exchanges, None, str(error))
            raise
        trial = self._keep(question, conversation, mode, exchanges, judged, "")
        return Try(
            failed=judged.failed,
            why=judged.why,
            reply=reply if reply is not None and reply.status == 200 else None,
            trial=trial,
        )

    async def tally(
        self, question: str, conversation: Conversation, count: int, **options: Any
    ) -> Tally:
        """Replay a chat so many times."""
        tries = [await self.try_once(question, conversation, **options) for _ in range(count)]
        return Tally(tries=tries)

    async def prompt_tokens(self, question: str, conversation: Conversation) -> int | None:
        """Return the prompt tokens of a chat, by a request of one answer token; None if refused."""
        one = await self.try_once(question, conversation, answer_tokens=1)
        return one.prompt_tokens

    async def _send(
        self,
        client: Client,
        conversation: Conversation,
        *,
        mode: Mode,
        max_tokens: int,
        thinking: bool | None,
        return_token_ids: bool,
    ) -> Reply:
        if self.requests >= self._most - self._reserved or time.monotonic() > self._deadline:
            raise Spent
        self.requests += 1
        greedy = mode is Mode.GREEDY
        drawn = not greedy and "seed" not in conversation.params  # else its own goes with `extra`
        params = {
            key: value
            for key, value in conversation.params.items()
            if not (greedy and key in SAMPLING)
        }
        temperature = params.pop("temperature", None)
        stop = params.pop("stop", None)
        kwargs = params.get("chat_template_kwargs")
        if thinking is not None and isinstance(kwargs, dict):  # else the chat's own would win
            switch = client.server.dialect.thinking(thinking).get("chat_template_kwargs", {})
            params["chat_template_kwargs"] = {**kwargs, **switch}
        return await client.chat(
            conversation.messages,
            max_tokens=max_tokens,
            tools=conversation.tools,
            temperature=0.0 if greedy else temperature,
            stream=conversation.stream,
            seed=self._seed + self.requests if self._seeded and drawn else None,
            stop=stop,
            thinking=thinking,
            extra=params,
            return_token_ids=return_token_ids,
            allow_status=_REFUSED,
        )

    def _judged(self, reply: Reply) -> Judged:
        if reply.status == 200:
            return self.judge.judge(reply)
        said = " ".join(str((reply.raw or {}).get("error") or reply.raw or "").split())[:200]
        why = f"the server refused it with {reply.status}: {said}"
        return Judged(failed=None, why=why, score=Score.EMPTY)

    def _keep(
        self,
        question: str,
        conversation: Conversation,
        mode: Mode,
        exchanges: list[Exchange],
        judged: Judged | None,
        error: str,
    ) -> str:
        number = len(self._journal.trials)
        name = "t" + hashlib.blake2s(f"{question} {number}".encode(), digest_size=6).hexdigest()
        last = exchanges[-1]
        cell: dict[str, str | int | float] = {
            "turns": conversation.turns,
            "messages": len(conversation.messages),
            "mode": str(mode),
        }
        if last.prompt_tokens is not None:
            cell["length_tokens"] = last.prompt_tokens
        if last.cached_tokens is not None:
            cell["cached_tokens"] = last.cached_tokens
        unjudged = judged is None or judged.failed is None
        self._journal.append(
            Trial(
                id=name,
                claim=f"triage/{question}",
                suite="triage",
                probe="conversation",
                key=str(number),
                seed=self._seed,
                cell=cell,
                expected=self.judge.words,
                score=judged.score if judged is not None and not unjudged else None,
                ok=None if unjudged or judged is None else not judged.failed,
                exchanges=tuple(self._redacted(exchange) for exchange in exchanges),
                error=self._redactor.text(error or (judged.why if unjudged and judged else "")),
            )
        )
        return name

    def _redacted(self, exchange: Exchange) -> Exchange:
        return msgspec.structs.replace(
            exchange,
            text=self._redactor.text(exchange.text),
            reasoning=self._redactor.text(exchange.reasoning),
            error=self._redactor.text(exchange.error),
            messages=tuple(self._redactor.json(message) for message in exchange.messages),
        )


def _more_room(reply: Reply, limit: int) -> int:
    """Return how many tokens an answer gets that was cut at its limit."""
    if reply.text.strip() and not reply.tool_calls:
        return max(limit, min(_MORE_ROOM * limit, REASONING_TOKENS))
    return max(limit, REASONING_TOKENS)


def _cut_again(judged: Judged, reply: Reply) -> Judged:
    """Judge an answer that was cut again: one that spoke all the while had its chance."""
    if not reply.text.strip():
        return judged
    why = f"with {reply.completion_tokens or 'more'} tokens it is {judged.why}"
    return Judged(failed=True, why=why, score=Score.WRONG)


def _failed_exchange(conversation: Conversation, question: str, error: EndpointError) -> Exchange:
    return Exchange(
        request_id="",
        path="/chat/completions",
        label=question,
        messages=excerpt_messages(conversation.messages),
        error=excerpt(str(error), 500),
    )
