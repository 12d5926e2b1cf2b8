"""The order of a triage: replay, shrink, ask, decide."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fidelity.deployment.deployment import Deployment
from fidelity.errors import EndpointError
from fidelity.triage.answers import Case
from fidelity.triage.conversation import Conversation
from fidelity.triage.decision import decide, not_reproduced
from fidelity.triage.desk import Desk, Mode, Spent, Tally
from fidelity.triage.lengths import LENGTHS, lengths, of_residue, residue_of
from fidelity.triage.page import Outcome
from fidelity.triage.pieces import filler, lengthened
from fidelity.triage.questions import ask_all
from fidelity.triage.shrink import shrink
from fidelity.triage.topic import topic_of

_MOST_TRIES = 8
"""Of one smaller chat, where failures are rare."""
_ENOUGH = 0.05
"""A chat that fails as often as the given one may be missed so often while shrinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """What is asked about, and of whom.

    Attributes:
        desk: that sends.
        deployment: that is asked.
        chat: as it was given.
        repeats: replays of one arm.
        hops: other ways to the same model, by name.
        stock: a deployment to compare with, by name; empty without one.
    """

    desk: Desk
    deployment: Deployment
    chat: Conversation
    repeats: int
    hops: Mapping[str, Deployment | str]
    stock: Mapping[str, Deployment | str]

    async def run(self) -> Outcome:
        """Take the chat apart.

        Raises:
            EndpointError: the server did not answer; what was asked is in the journal.
        """
        desk, chat = self.desk, self.chat
        arms = await self._replayed(chat)
        notes: list[str] = []
        if chat.withheld:
            names = ", ".join(dict.fromkeys(chat.withheld))
            notes.append(f"fields of the chat that hold keys are not sent: {names}")
        unjudged = [mode for mode, tally in arms.items() if not tally.judged]
        if not any(tally.failed for tally in arms.values()):
            changed = None if unjudged else await self._fails_changed()
            if changed is None:
                return self._unharmed(arms, notes)
            how, chat = changed
            arms[Mode.GREEDY] = await desk.tally("replay", chat, self.repeats)
            if not arms[Mode.GREEDY].failed:
                return self._unharmed(arms, notes)
            notes.append(f"as given it does not fail; {how}, it does: that chat is taken apart")
        for mode in unjudged:
            why = next((one.why for one in arms[mode].tries), "")
            notes.append(f"{mode}: no answer could be judged: {why}")
        return await self._taken_apart(chat, arms, notes)

    async def _replayed(self, chat: Conversation) -> dict[Mode, Tally]:
        modes = [Mode.GREEDY]
        if chat.names_sampling or self.deployment.profile.sampling.get("temperature"):
            modes.insert(0, Mode.SAMPLED)
        return {
            mode: await self.desk.tally("replay", chat, self.repeats, mode=mode) for mode in modes
        }

    async def _fails_changed(self) -> tuple[str, Conversation] | None:
        """Return how a chat that does not fail can be made to, and that chat."""
        other = replace(self.chat, stream=not self.chat.stream)
        with contextlib.suppress(Spent, EndpointError):
            if (await self.desk.try_once("stream", other)).failed:
                return "streamed" if other.stream else "in one piece", other
        longer = await self._fails_when_longer()
        if longer is None:
            return None
        return f"with {filler(longer[0])!r} behind it", longer[1]

    async def _fails_when_longer(self) -> tuple[int, Conversation] | None:
        """Return the first longer chat that fails: a fault of one residue misses most lengths."""
        for step in range(1, 2 * LENGTHS):
            longer = lengthened(self.chat, step)
            with contextlib.suppress(Spent):
                if (await self.desk.try_once("length", longer)).failed:
                    return step, longer
        return None

    async def _taken_apart(
        self, chat: Conversation, arms: dict[Mode, Tally], notes: list[str]
    ) -> Outcome:
        desk = self.desk
        mode = _worst(arms)
        facts = desk.judge.facts_in(chat.context)
        if desk.judge.expect and not facts:
            notes.append(
                "what is expected stands nowhere before the question, so that no turn can be left"
                " out safely: nothing is shrunk"
            )
        if desk.judge.guessed:
            notes.append(
                "nobody says what the answer must hold: it was read off the chat; --expect TEXT"
                " says otherwise"
            )
        elif not desk.judge.expect:
            notes.append(
                "nobody says what the answer must hold: the turn that shares the rarest words with"
                " the question stays; with --expect TEXT it is the one that tells it"
            )
        before = desk.requests
        smallest, stopped = chat, False
        if facts or not desk.judge.expect:
            smallest, stopped = await self._shrunk(chat, mode, arms[mode], facts)
        shrink_requests = desk.requests - before
        again = Tally()
        with contextlib.suppress(Spent):
            again = await desk.tally("smallest", smallest, self.repeats, mode=mode)
        if again.judged and not again.failed and smallest is not chat:
            notes.append("the smallest chat did not fail again; the given one is asked about")
            smallest = chat
        if desk.room > smallest.max_tokens:
            notes.append(
                f"answers were cut at {smallest.max_tokens} tokens: they are judged at {desk.room}"
            )
            smallest = replace(smallest, max_tokens=desk.room)
        if any(one.failed and one.reply and one.reply.tool_calls for one in again.tries):
            notes.append("it is answered by a tool call, where the text is expected")
        answers = await ask_all(
            Case(
                desk=desk,
                deployment=self.deployment,
                smallest=smallest,
                original=chat,
                facts=facts,
                mode=mode,
                # so often that a server which fails alike is not taken for a healthy one
                repeats=max(min(3, self.repeats), tries_for(arms[mode])),
                hops=self.hops,
                stock=self.stock,
            )
        )
        return Outcome(
            given=self.chat,
            expectation=desk.judge.words,
            arms=arms,
            notes=tuple(notes),
            decision=decide(arms, answers),
            requests=desk.requests,
            sizes=(_tokens(list(arms.values())), _tokens([again])),
            smallest=smallest,
            again=again,
            mode=mode,
            answers=tuple(answers),
            shrink_requests=shrink_requests,
            stopped=stopped,
        )

    async def _shrunk(
        self, chat: Conversation, mode: Mode, tally: Tally, facts: tuple[str, ...]
    ) -> tuple[Conversation, bool]:
        """Return the smallest chat that fails, and whether the bound ended the search.

        Where only lengths of one residue fail, each smaller chat is brought to that residue: else
        most of them would pass for a reason that has nothing to do with what was left out.
        """
        desk = self.desk
        tries = tries_for(tally)
        best = [chat]
        residue = residue_of((await lengths(desk, chat))[0])

        async def brought(candidate: Conversation) -> Conversation:
            if residue is None or not self.deployment.capabilities.has("tokenize"):
                return candidate
            return await of_residue(desk, candidate, residue)

        async def fails(candidate: Conversation) -> bool:
            sent = await brought(candidate)
            for _ in range(tries):
                if (await desk.try_once("shrink", sent, mode=mode)).failed:
                    best.append(sent)
                    return True
            return False

        desk.reserve()
        try:
            found = await shrink(
                chat, desk.judge, facts, fails, pinned=() if facts else topic_of(chat)
            )
            return await brought(found), False
        except Spent:
            return best[-1], True
        finally:
            desk.release()

    def _unharmed(self, arms: dict[Mode, Tally], notes: list[str]) -> Outcome:
        return Outcome(
            given=self.chat,
            expectation=self.desk.judge.words,
            arms=arms,
            notes=tuple(notes),
            decision=not_reproduced(arms),
            requests=self.desk.requests,
            sizes=(_tokens(list(arms.values())), None),
        )


def tries_for(tally: Tally) -> int:
    """Return how often a smaller chat is tried before it counts as answered right.

    So often that one which fails at the same rate would be missed once in twenty.
    """
    if not tally.judged:
        return 1
    passes = 1 - tally.failed / tally.judged
    tries, missed = 1, passes
    while missed > _ENOUGH and tries < _MOST_TRIES:
        tries, missed = tries + 1, missed * passes
    return tries


def _worst(arms: dict[Mode, Tally]) -> Mode:
    """Return the mode that fails most often; greedy where both do alike: it repeats itself."""
    return max(arms, key=lambda mode: (arms[mode].failed, mode is Mode.GREEDY))


def _tokens(tallies: list[Tally]) -> int | None:
    found = [one.prompt_tokens for tally in tallies for one in tally.tries]
    return next((tokens for tokens in found if tokens is not None), None)
