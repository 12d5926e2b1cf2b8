"""Scores one answer against what is known to be right.

Read are content, reasoning and tool arguments; digits count however they are set: with thousands
separators, spaces, bold marks, in code blocks, as full-width digits.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.probes.amnesia import denies_the_conversation
from fidelity.words import Score

if TYPE_CHECKING:
    from fidelity.endpoint.replies import Reply

_BETWEEN_DIGITS = "[ ,.'_*`\u00a0\u2009\u202f\u2019-]{0,2}"
_TEXT_LIMIT = 200_000
MOST_CODES = 2
"""An answer with more different codes than this is a list, not an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reply says, wherever it says it."""

    content: str = ""
    reasoning: str = ""
    arguments: str = ""
    """Of tool calls, one after the other."""
    cut: bool = False
    """The server stopped at the token limit."""

    @property
    def said(self) -> str:
        """Content and tool arguments: what a user or a tool gets to see."""
        return f"{self.content}\n{self.arguments}".strip()

    @classmethod
    def of(cls, reply: Reply) -> Answer:
        """Read a reply."""
        return cls(
            content=reply.text[:_TEXT_LIMIT],
            reasoning=reply.reasoning[:_TEXT_LIMIT],
            arguments="\n".join(call.arguments for call in reply.tool_calls)[:_TEXT_LIMIT],
            cut=reply.finish_reason == "length",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is right.

    Attributes:
        right: the code, name or words that must appear.
        distractors: rivals; naming one of them beside the right one is hedging, hence wrong.
        superseded: earlier values of the same fact; they may be named before the right one.
        digits: True when `right` is a number; otherwise letters and digits are compared, with
            everything between them ignored ("tea_house.html" names the "tea house").
        open_ended: the answer may be long and may be cut: no runaway.
        count: `right` is a number to count to: every number from 1, in order, nothing else.
    """

    right: str
    distractors: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    digits: bool = True
    open_ended: bool = False
    count: bool = False


def score(answer: Answer, expected: Expected) -> Score:
    """Return the score of one answer."""
    if not (answer.said or answer.reasoning.strip()):
        return Score.EMPTY
    if _settles(answer.said, expected):
        return Score.RUNAWAY if answer.cut and not expected.open_ended else Score.RIGHT
    if answer.cut and not answer.said:
        return Score.CUT
    if not answer.said and _settles(answer.reasoning, expected, by_the_end=True):
        return Score.RIGHT
    if denies_the_conversation(answer.said) or denies_the_conversation(answer.reasoning):
        return Score.AMNESIC
    return Score.WRONG


def names_code(text: str, code: str) -> bool:
    """Return True when the digits of `code` stand in a text as one number."""
    return bool(_places_of_code(plain(text), code))


def names_words(text: str, words: str) -> bool:
    """Return True when the letters and digits of `words` follow each other in a text."""
    return _squeezed(words) in _squeezed(text)


def counts_to(text: str, last: int) -> bool:
    """Return True when the numbers of a text are exactly 1, 2, 3 ... `last`."""
    found = [int(number) for number in re.findall(r"\d{1,9}", plain(text[:_TEXT_LIMIT]))]
    return found == list(range(1, last + 1))


def plain(text: str) -> str:
    """Return a text in which every decimal digit of any script is an ASCII digit."""
    normal = unicodedata.normalize("NFKC", text)
    if normal.isascii():
        return normal
    return "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in normal)


def _settles(text: str, expected: Expected, *, by_the_end: bool = False) -> bool:
    """Return True when a text gives the right answer and no other.

    Args:
        text: to read.
        expected: what is right.
        by_the_end: rivals may be weighed on the way, as in reasoning; the last one named counts.
    """
    if expected.count:
        return counts_to(text, int(expected.right))
    places = _find(text, expected.right, expected)
    if not places:
        return False
    rivals = [p for rival in expected.distractors for p in _find(text, rival, expected)]
    earlier = [p for old in expected.superseded for p in _find(text, old, expected)]
    if by_the_end:
        return max(places) > max([*rivals, *earlier], default=-1)
    if rivals or max(places) < max(earlier, default=-1):
        return False
    return not expected.digits or _count_codes(text, len(expected.right)) <= MOST_CODES


def _find(text: str, wanted: str, expected: Expected) -> list[int]:
    if expected.digits:
        return _places_of_code(plain(text), wanted)
    place = _squeezed(text).rfind(_squeezed(wanted))
    return [place] if place >= 0 else []


def _places_of_code(text: str, code: str) -> list[int]:
    """Return where a code stands; not as a part of a longer number."""
    digits = _BETWEEN_DIGITS.join(code)
    pattern = rf"(?<!\d)(?<!\d[.,]){digits}(?!\d)(?![.,]\d{{3}}(?!\d))"
    return [found.start() for found in re.finditer(pattern, text)]


def _count_codes(text: str, digits: int) -> int:
    """Return how many different numbers of exactly that many digits a text names."""
    return len(set(re.findall(rf"(?<!\d)\d{{{digits}}}(?!\d)", plain(text))))


def _squeezed(text: str) -> str:
    return "".join(char for char in plain(text).casefold() if char.isalnum())
