"""The game that Hypothesis plays: which moves there are, when, and with what sizes.

The machine only chooses. At its end the moves are handed over to be played against the server, all
at once: so that a game is data, which can be journalled, shortened, written down and played again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fidelity.fuzz.moves import (
    FACTS,
    Kind,
    Move,
    Moves,
    Rules,
    Style,
    requests_of,
    sound,
)

Play = Callable[[Moves], bool]
"""Plays a game against the server; False when an answer was not what it is alone."""

DELTAS = (0, 1, 4, 40)
MOST_TALKS = 4
LAST_QUESTIONS = 2
"""At the end of each game, to its latest conversations: whatever was cached of them is read."""

_FACTS = st.sampled_from(FACTS)
_SOME_FACTS = st.sampled_from((0, *FACTS))
_TALK = st.sampled_from(range(MOST_TALKS))
_WHICH = st.sampled_from((0, 1, 3, 5))
_AFTER = st.sampled_from(DELTAS)


class Failed(AssertionError):
    """A game in which an answer was not what it is alone."""


class Game(RuleBasedStateMachine):
    """Chooses moves; plays them at the end."""

    limits: Rules
    play: Play

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[Move] = []
        self.talks = 0

    @initialize(facts=_FACTS, data=st.data())
    def begin(self, facts: int, data: st.DataObject) -> None:
        """Open the first conversation."""
        self._add(kind=Kind.OPEN, facts=facts, which=1, style=self._style(data))

    @precondition(lambda self: self.talks < MOST_TALKS)
    @rule(facts=_FACTS, which=_WHICH, data=st.data())
    def open(self, facts: int, which: int, data: st.DataObject) -> None:
        """Open another conversation."""
        self._add(
            kind=Kind.OPEN,
            talk=self.talks,
            facts=facts,
            style=self._style(data),
            which=which,
            beside=self._strangers(data),
        )

    @rule(talk=_TALK, facts=_SOME_FACTS, which=_WHICH, data=st.data())
    def follow_up(self, talk: int, facts: int, which: int, data: st.DataObject) -> None:
        """Go on with a conversation."""
        self._add(
            kind=Kind.FOLLOW_UP,
            talk=talk % self.talks,
            facts=facts,
            which=which,
            beside=self._strangers(data),
        )

    @precondition(lambda self: self.talks < MOST_TALKS)
    @rule(of=_TALK, turns=st.sampled_from((1, 2)), facts=_SOME_FACTS)
    def fork(self, of: int, turns: int, facts: int) -> None:
        """Begin a conversation with the first turns of another one."""
        self._add(kind=Kind.FORK, talk=self.talks, of=of % self.talks, turns=turns, facts=facts)

    @precondition(lambda self: self._kinds().count(Kind.RETRY) < 2)
    @rule(talk=_TALK)
    def retry(self, talk: int) -> None:
        """Say the last turn once more."""
        self._add(kind=Kind.RETRY, talk=talk % self.talks)

    @rule(talk=_TALK, facts=_SOME_FACTS, after=_AFTER, keep=st.booleans(), data=st.data())
    def abort(self, talk: int, facts: int, after: int, keep: bool, data: st.DataObject) -> None:
        """Leave a turn before its end, also the first one of a new conversation."""
        self._add(
            kind=Kind.ABORT,
            talk=min(talk, self.talks, MOST_TALKS - 1),
            facts=facts,
            after=after,
            by_call=self._by_call(data),
            keep=keep,
        )

    @rule(talk=_TALK, facts=_FACTS, more=_SOME_FACTS, after=_AFTER, data=st.data())
    def interrupt(self, talk: int, facts: int, more: int, after: int, data: st.DataObject) -> None:
        """Leave a turn, and say the same with something else behind it."""
        talk = min(talk, self.talks, MOST_TALKS - 1)
        by_call = self._by_call(data)
        self._add(kind=Kind.ABORT, talk=talk, facts=facts, after=after, by_call=by_call)
        self._add(kind=Kind.FOLLOW_UP, talk=talk, facts=more, which=1)

    @precondition(lambda self: bool(self.limits.flood_lines) and self._may(Kind.FLOOD))
    @rule(data=st.data())
    def flood(self, data: st.DataObject) -> None:
        """Evict what is cached."""
        self._add(kind=Kind.FLOOD, lines=data.draw(st.sampled_from(self.limits.flood_lines)))

    @precondition(lambda self: self.limits.flush and self._may(Kind.FLUSH))
    @rule()
    def flush(self) -> None:
        """Empty the cache."""
        self._add(kind=Kind.FLUSH)

    def teardown(self) -> None:
        """Play."""
        moves = sound((*self.moves, *self._asked_once_more()))
        if moves and not self.play(moves):
            raise Failed

    def _add(self, **fields: Any) -> None:
        move = Move(**fields)
        if requests_of((*self.moves, move)) <= self.limits.most_requests:
            self.moves.append(move)
            self.talks = max(self.talks, move.talk + 1 if move.talks else 0)

    def _kinds(self) -> list[Kind]:
        return [move.kind for move in self.moves]

    def _may(self, kind: Kind) -> bool:
        """Twice is enough, and never twice in a row: nothing comes of it."""
        kinds = self._kinds()
        return self.limits.disruptive and kinds[-1] is not kind and kinds.count(kind) < 2

    def _style(self, data: st.DataObject) -> Style:
        styles = [Style.GREEDY, Style.WHOLE, *([Style.TOOLS] if self.limits.tools else [])]
        return data.draw(st.sampled_from(styles))

    def _by_call(self, data: st.DataObject) -> bool:
        return self.limits.call and data.draw(st.booleans())

    def _strangers(self, data: st.DataObject) -> tuple[Style, ...]:
        most = self.limits.strangers
        count = data.draw(st.sampled_from((0, 0, min(1, most), most)))
        style = st.sampled_from((Style.GREEDY, Style.WARM))
        return tuple(data.draw(style) for _ in range(count))

    def _asked_once_more(self) -> Moves:
        talks = [move.talk for move in reversed(self.moves) if move.talks]
        return tuple(
            Move(kind=Kind.FOLLOW_UP, talk=talk, facts=2, which=3)
            for talk in list(dict.fromkeys(talks))[:LAST_QUESTIONS]
        )


def machine_of(rules: Rules, play: Play) -> type[Game]:
    """Return the machine of one deployment."""
    return type("GameOfOneServer", (Game,), {"limits": rules, "play": staticmethod(play)})
