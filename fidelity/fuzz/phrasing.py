"""From moves to a script: texts, facts and questions, all drawn from one number."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fidelity.fuzz.moves import Kind, Move, Moves, Style
from fidelity.fuzz.script import Abort, AnyStep, Chat, Flood, Flush, Message, Script, Together
from fidelity.probes import wordlists
from fidelity.probes.dialogue import READ, assistant, called, tool, user
from fidelity.probes.filler import filler_of, numbered
from fidelity.probes.needles import ask, draw_codes, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FACTS = 400
_LONG_TASK = "Count from 1 to 60."
_ACKNOWLEDGED = "I have read it."
_TOOLS = (tool("get_weather", "Get the weather of a city", "city"),)


@dataclass(slots=True)
class _Talk:
    """One conversation as it is written: facts in the order of telling, by turn."""

    name: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    """(name, code)."""
    told: list[int] = field(default_factory=list)
    """Facts known after each turn."""
    last: Chat | None = None
    begun: bool = False
    """True once its first line was written."""
    unsaid: tuple[Message, ...] = ()
    """Notes of an aborted turn, which the next turn begins with."""
    tools: tuple[Message, ...] = ()


def script_of(moves: Moves, *, seed: str, about: str = "") -> Script:
    """Return the script of these moves.

    Args:
        moves: sound ones.
        seed: of every word; two seeds share no prefix.
        about: one sentence for the file.
    """
    pen = _Pen(seed)
    steps = [pen.step(move) for move in moves]
    return Script(about=about, facts=pen.owners, steps=tuple(steps))


class _Pen:
    """Writes one script."""

    def __init__(self, seed: str) -> None:
        self._draw = random.Random(f"script {seed}")  # noqa: S311 - prompts, not secrets
        self._seed = seed
        self._names = self._all_names()
        self._codes = iter(draw_codes(self._draw, MOST_FACTS))
        self._talks: dict[int, _Talk] = {}
        self._texts = 0
        self.owners: dict[str, str] = {}

    def _all_names(self) -> Iterator[str]:
        """Yield names; neighbours share no word."""
        colours = self._draw.sample(wordlists.COLOURS, len(wordlists.COLOURS))
        places = self._draw.sample(wordlists.PLACES, len(wordlists.PLACES))
        for shift in range(len(places)):
            for index, colour in enumerate(colours):
                yield f"{colour} {places[(index + shift) % len(places)]}"

    def step(self, move: Move) -> AnyStep:
        """Return one move in words."""
        if move.kind is Kind.FLUSH:
            return Flush()
        if move.kind is Kind.FLOOD:
            text = f"{READ}{self._book()}{numbered(self._lines(move.lines))}What is line 1?"
            return Flood(say=text)
        main = self._abort(move) if move.kind is Kind.ABORT else self._chat(move)
        if not move.beside:
            return main
        strangers = [self._stranger(style) for style in move.beside]
        return Together(steps=(main, *strangers))

    def _chat(self, move: Move) -> Chat:
        if move.kind is Kind.RETRY:
            talk = self._talks[move.talk]
            last = talk.last
            if last is None:
                raise ValueError("a retry needs a turn to say again")
            return msgspec.structs.replace(last, of="", turns=0, retry=True)
        talk, options = self._talk(move)
        given = self._told(talk, move.facts)
        say, expect = self._message(talk, move)
        chat = self._styled(talk, move.style, say=say, expect=expect, given=given, **options)
        talk.told.append(len(talk.facts))
        talk.last = chat
        return chat

    def _talk(self, move: Move) -> tuple[_Talk, dict[str, Any]]:
        if move.kind is Kind.FORK:
            source = self._talks[move.of]
            known = source.told[min(move.turns, len(source.told)) - 1]
            forked = _Talk(
                name=f"c{move.talk + 1}",
                facts=source.facts[:known],
                told=source.told[: move.turns],
                begun=True,
                tools=source.tools,
            )
            self._talks[move.talk] = forked
            return forked, {"of": source.name, "turns": move.turns}
        if move.kind is Kind.OPEN:
            tools = _TOOLS if move.style is Style.TOOLS else ()
            self._talks[move.talk] = _Talk(name=f"c{move.talk + 1}", tools=tools)
        return self._talks[move.talk], {}

    def _abort(self, move: Move) -> Abort:
        talk = self._talks.setdefault(move.talk, _Talk(name=f"c{move.talk + 1}"))
        given = self._told(talk, move.facts)
        if move.keep:
            talk.told.append(len(talk.facts))
        else:
            talk.unsaid = given
        return Abort(
            conversation=talk.name,
            given=given,
            say=_LONG_TASK,
            after_deltas=move.after,
            by_call=move.by_call,
            keep_partial=move.keep,
            tools=talk.tools,
        )

    def _message(self, talk: _Talk, move: Move) -> tuple[str, str]:
        """Return what is said and the right answer; a conversation without facts just counts."""
        if not talk.facts:
            return _LONG_TASK, ""
        name, code = talk.facts[-1 - move.which % len(talk.facts)]
        return ask(name), code

    def _told(self, talk: _Talk, facts: int) -> tuple[Message, ...]:
        """Return the notes of a turn as read; what an abort left unsaid comes first, as it was."""
        unsaid, talk.unsaid = talk.unsaid, ()
        book = "" if talk.begun else self._book()
        talk.begun = True
        lines = []
        for filler in self._lines(facts):
            name, code = next(self._names), next(self._codes)
            talk.facts.append((name, code))
            self.owners[code] = talk.name
            lines += [filler, tell(name, code)]
        if not (lines or book):
            return unsaid
        return (*unsaid, user(f"{READ}{book}{numbered(lines)}"), assistant(_ACKNOWLEDGED))

    def _styled(
        self,
        talk: _Talk,
        style: Style,
        *,
        say: str,
        expect: str,
        given: tuple[Message, ...] = (),
        **options: Any,
    ) -> Chat:
        warm = style is Style.WARM
        if style is Style.TOOLS and talk.tools:
            degrees = self._draw.randint(-9, 39)
            given = (
                *given,
                user("What is the weather in Oslo?"),
                *called(
                    "get_weather", {"city": "Oslo"}, json.dumps({"temp": degrees}), call_id="call_1"
                ),
                assistant(f"It is {degrees} degrees in Oslo."),
            )
        return Chat(
            conversation=talk.name,
            say=say,
            given=given,
            expect=expect,
            others=tuple(code for _, code in talk.facts if code != expect) if expect else (),
            temperature=0.8 if warm else 0.0,
            seed=self._draw.randint(1, 9_999) if warm else None,
            stream=style is not Style.WHOLE,
            tools=talk.tools,
            **options,
        )

    def _stranger(self, style: Style) -> Chat:
        self._texts += 1
        talk = _Talk(name=f"stranger {self._texts}", tools=_TOOLS if style is Style.TOOLS else ())
        given = self._told(talk, 2)
        name, code = talk.facts[0]
        return self._styled(talk, style, say=ask(name), expect=code, given=given)

    def _lines(self, count: int) -> list[str]:
        self._texts += 1
        return filler_of(f"script {self._seed} {self._texts}").sentences(count)

    def _book(self) -> str:
        """Return a first line that nobody else has: no prefix is shared by accident."""
        return f"Log book {self._draw.randint(100_000, 999_999)}.\n"
