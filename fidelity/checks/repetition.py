"""Says whether a text repeats itself: loops, repeated words and lines, compression.

Everything is counted in bytes or characters, so that it holds for any language and for scripts
without spaces. Counting and numbered lists are no loops: each line differs from the one before.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

MOST_PERIOD_CHARS = 1_500
"""Longest unit that is looked for; a loop over more than a page shows in the other measures."""
SHORT_PERIOD_BYTES = 40
REPEATS = 4
"""Of a short unit in a row. Prose says a thing three times ("never, never, never"), not four."""
REPEATS_OF_LONG = 3
"""Of a unit of a line or more: healthy texts do not say a line three times in a row."""
TAIL_BYTES = 48
"""Of a loop at the end: long enough that "ha ha ha ha" is none, short enough to see its start."""
INNER_BYTES = 160
"""Of one that the text left again, rules of dashes and rows of zeros apart."""
FILL_CHARS = 2
"""Units of so few characters are often drawn lines or columns: a row of 160 bytes is allowed."""
WORD_RUN = 8
"""Of one word in a row."""
LINE_SHARE = 0.25
LINE_COUNT = 5
LINE_CHARS = 12
"""Shorter lines (braces, closing tags, "OK.") come back in healthy texts."""
RATIO = 0.05
LEAST_RATIO_BYTES = 3_000
"""Deflate leaves .2 to .5 of prose and of counting, .09 to .3 of lists whose lines differ in a few
places, and .01 to .04 of a page over and over; in short texts its own header blurs that."""
_GRAM_CHARS = 12
"""Inner loops are found by pieces of so many characters that come back at one distance."""


class Loop(NamedTuple):
    """A unit that follows itself: where it starts, in characters, and how often it is there."""

    unit: str
    start: int
    repeats: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """What repeats in a text.

    Attributes:
        gzip_ratio: compressed bytes over bytes.
        word_run: how often one word follows itself.
        line: the line that comes most often, and `line_count` how often, of `lines` long ones.
        tail: loop at the very end, None where there is none.
        inner: longest loop anywhere.
    """

    size_bytes: int
    gzip_ratio: float
    word_run: int
    line: str
    line_count: int
    lines: int
    tail: Loop | None
    inner: Loop | None

    @property
    def breaches(self) -> list[str]:
        """Return what makes it a repetitive text, in words; none for a healthy one."""
        found = []
        if self.tail is not None:
            found.append(f"it ends in a loop: {_words(self.tail)}")
        elif self.inner is not None:
            found.append(f"it holds a loop: {_words(self.inner)}")
        if self.word_run >= WORD_RUN:
            found.append(f"one word follows itself {self.word_run} times")
        if self.line_count >= LINE_COUNT and self.line_count >= LINE_SHARE * self.lines:
            found.append(f"{self.line_count} of {self.lines} lines are {self.line[:60]!r}")
        if self.size_bytes >= LEAST_RATIO_BYTES and self.gzip_ratio < RATIO:
            found.append(f"it compresses to {self.gzip_ratio:.3f} of its {self.size_bytes} bytes")
        return found


def repetition(text: str) -> Repetition:
    """Return what repeats in a text, in time that grows with its length."""
    data = text.encode("utf-8", "replace")
    counts = Counter(line.strip() for line in text.splitlines() if len(line.strip()) >= LINE_CHARS)
    line, line_count = counts.most_common(1)[0] if counts else ("", 0)
    kept = text.rstrip()
    return Repetition(
        size_bytes=len(data),
        gzip_ratio=len(zlib.compress(data, 9)) / max(1, len(data)),
        word_run=_word_run(text.split()),
        line=line,
        line_count=line_count,
        lines=counts.total(),
        tail=_tail_loop(kept),
        inner=_inner_loop(kept),
    )


def _word_run(words: list[str]) -> int:
    """Numbers may stand in a row: a table of zeros is no loop of words."""
    longest = run = 0
    before = ""
    for word in words:
        is_word = any(char.isalpha() for char in word)
        run = run + 1 if word == before and is_word else int(is_word)
        longest = max(longest, run)
        before = word
    return longest


def _tail_loop(text: str) -> Loop | None:
    """Return the loop of the shortest unit that reaches the end, however short and late."""
    for period in range(1, min(MOST_PERIOD_CHARS, len(text) // 2) + 1):
        matched = 0
        while matched + period < len(text) and text[-1 - matched] == text[-1 - matched - period]:
            matched += 1
        # before what matches lies one unit more: the first of the repeats
        found = _loop(text, len(text) - matched - period, period, matched, at_end=True)
        if found is not None:
            return found
    return None


def _inner_loop(text: str) -> Loop | None:
    """Return the largest loop anywhere."""
    largest: Loop | None = None
    last_place: dict[str, int] = {}
    distance = run = 0
    for at in range(len(text) - _GRAM_CHARS + 2):
        gram = text[at : at + _GRAM_CHARS]
        period = at - last_place.get(gram, at)
        last_place[gram] = at
        if period == distance and period:
            run += 1
            continue
        if run:
            matched = run + _GRAM_CHARS - 1
            start = at - run - distance
            found = _loop(text, start, distance, matched, at_end=False)
            largest = max((x for x in (largest, found) if x), key=_size, default=None)
        distance, run = period, int(bool(period))
    return largest


def _size(loop: Loop) -> int:
    return loop.size_bytes


def _loop(text: str, start: int, period: int, matched: int, *, at_end: bool) -> Loop | None:
    repeats = 1 + matched / period
    unit = text[start : start + period]
    if not unit.strip():
        return None
    unit_bytes = len(unit.encode("utf-8", "replace"))
    needed = REPEATS if unit_bytes < SHORT_PERIOD_BYTES else REPEATS_OF_LONG
    size = len(text[start : start + period + matched].encode("utf-8", "replace"))
    bound = TAIL_BYTES if at_end and len(set(unit)) > FILL_CHARS else INNER_BYTES
    if repeats < needed or size < bound:
        return None
    return Loop(unit, start, repeats, size)


def _words(loop: Loop) -> str:
    return f"{loop.unit[:60]!r} {loop.repeats:.1f} times from character {loop.start} on"
