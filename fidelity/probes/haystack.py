"""Contexts of an exact number of tokens, with facts at a chosen depth.

A prompt is fitted in a few steps: filler lines bring it near the target, common short words bring
it to the very token. What was reached is told, never assumed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fidelity.errors import ConfigError
from fidelity.probes.filler import filler_of, pad_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelity.probes.calibration import Count

INTRODUCTION = "Read these notes.\n"
_FIRST_GUESS_TOKENS = 17.0
_PAD_LINE_TOKENS = 16
"""More than the tokens of a line around its words, in any vocabulary that we have seen."""
_PAD_ROOM_TOKENS = 45
"""Nearer to the target than this, words are added instead of lines."""
_LINE_STEPS = 10
_WORD_STEPS = 10

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much filler a prompt has: whole lines, and words of one last line."""

    lines: int
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A prompt and the tokens that it has by the deployment's count."""

    messages: Messages
    tokens: int
    counted: bool
    """True when the deployment's tokenizer counted; otherwise `tokens` is an estimate."""
    size: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A sentence and the share of the filler that stands before it, 0 to 1.

    A heading has no number: it is no line among the others.
    """

    sentence: str
    depth_frac: float
    heading: bool = False


def haystack(seed: str, size: Size, placed: Sequence[Placed] = (), *, repeated: str = "") -> str:
    """Return numbered lines of distinct filler with sentences placed among them.

    Args:
        seed: of the filler and of the words that pad.
        size: lines of filler; with words, one line more that holds them.
        placed: sentences, numbered like the filler so that nothing but their words marks them, and
            headings; those of one place keep their order.
        repeated: a line to use instead of distinct filler: the degenerate contrast.
    """
    filler = [repeated] * size.lines if repeated else filler_of(seed).sentences(size.lines)
    whole = len(filler)
    if size.words:
        filler.append(f"Also {pad_words(size.words, seed)}.")
    lines = [(line, False) for line in filler]
    places = [round(item.depth_frac * whole) for item in placed]
    for index in sorted(range(len(placed)), key=lambda at: (places[at], at), reverse=True):
        lines.insert(places[index], (placed[index].sentence, placed[index].heading))
    return _written(lines)


def _written(lines: Sequence[tuple[str, bool]]) -> str:
    """Return numbered lines; a heading (True) stands unnumbered between them."""
    numbers = itertools.count(1)
    return "".join(
        f"{line}\n" if heading else f"Line {next(numbers)}: {line}\n" for line, heading in lines
    )


async def fit(
    count: Callable[[Messages], Awaitable[Count]],
    render: Callable[[Size], Messages],
    target: int,
) -> Fitted:
    """Return a prompt of `target` tokens, or the nearest below it that could be reached.

    Args:
        count: tokens of messages, by the deployment.
        render: the messages for an amount of filler; more filler must mean more tokens.
        target: tokens, generation prompt included.

    Raises:
        ConfigError: the prompt has more tokens than that without any filler.
        EndpointError: the server did not answer a count.
    """
    fitting = _Fitting(count, render, target)
    bare = await fitting.try_size(Size(lines=0))
    if bare > target:
        raise ConfigError(
            f"a prompt of {target} tokens cannot hold its question: without filler it has {bare}"
        )
    lines, tokens = await _fit_lines(fitting, bare)
    await _fit_words(fitting, lines, tokens)
    if fitting.best is None:  # unreachable: the bare prompt is not longer than the target
        raise ConfigError(f"no prompt of {target} tokens was found")
    return fitting.best


class _Fitting:
    """Counts sizes, and keeps the best prompt seen that is not longer than the target."""

    def __init__(
        self,
        count: Callable[[Messages], Awaitable[Count]],
        render: Callable[[Size], Messages],
        target: int,
    ) -> None:
        self._count = count
        self._render = render
        self.target = target
        self.best: Fitted | None = None

    async def try_size(self, size: Size) -> int:
        messages = self._render(size)
        counted = await self._count(messages)
        if counted.tokens <= self.target and (
            self.best is None or counted.tokens > self.best.tokens
        ):
            self.best = Fitted(
                messages=messages,
                tokens=counted.tokens,
                counted=counted.exact,
                size=size,
            )
        return counted.tokens

    @property
    def done(self) -> bool:
        return self.best is not None and self.best.tokens == self.target


async def _fit_lines(fitting: _Fitting, bare: int) -> tuple[int, int]:
    """Return the lines, and their tokens, that leave room for one short line."""
    lines, tokens, per_line = 0, bare, _FIRST_GUESS_TOKENS
    for _ in range(_LINE_STEPS):
        room = fitting.target - tokens - _PAD_LINE_TOKENS
        if 0 <= room <= _PAD_ROOM_TOKENS or fitting.done or (room < 0 and lines == 0):
            break
        step = math.floor((room - per_line / 2) / per_line)
        lines = max(0, lines + (step or 1))
        tokens = await fitting.try_size(Size(lines=lines))
        if lines:
            per_line = max(1.0, (tokens - bare) / lines)
    return lines, tokens


async def _fit_words(fitting: _Fitting, lines: int, tokens: int) -> None:
    """Add words until the prompt has the target's tokens; in most vocabularies one token each."""
    words, per_word = max(1, fitting.target - tokens - _PAD_LINE_TOKENS), 1.0
    seen: dict[int, int] = {}
    while not fitting.done and words not in seen and len(seen) < _WORD_STEPS:
        seen[words] = await fitting.try_size(Size(lines=lines, words=words))
        if len(seen) > 1:
            few, many = min(seen), max(seen)
            per_word = max(1.0, (seen[many] - seen[few]) / (many - few))
        words = max(1, words + math.floor((fitting.target - seen[words]) / per_word))
