"""What a run never exercised, in words: beyond each axis, and the largest empty corners."""

from collections.abc import Sequence
from dataclasses import dataclass

from reports.view_bins import Bin
from reports.view_paths import Request
from reports.view_text import joined

Place = tuple[int, int, int]
"""Bins of prefilled, cached and generated tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The bins of a coverage map."""

    prefilled: tuple[Bin, ...]
    cached: tuple[Bin, ...]
    generated: tuple[Bin, ...]


def never_of(
    requests: Sequence[Request], seen: set[Place], axes: Axes, limit: int
) -> tuple[str, ...]:
    """Return what was never exercised: beyond each axis, then together within each of them."""
    sentences = []
    beyond = _beyond(requests, limit)
    if beyond:
        sentences.append(f"Never exercised at all: {joined(beyond)}.")
    bins = (axes.prefilled, axes.cached, axes.generated)
    corners = [
        corner for pair, words in _PAIRS if (corner := _corner(seen, pair, bins, words, limit))
    ]
    if corners:
        sentences.append(f"Never exercised together: {'; '.join(corners)}.")
    return tuple(sentences)


_CACHED = "reading {} from the cache"
_PAIRS = (
    ((0, 2), ("prefilling {}", "then generating {}")),
    ((1, 2), (_CACHED, "then generating {}")),
    ((1, 0), (_CACHED, "then prefilling {}")),
)


def _beyond(requests: Sequence[Request], limit: int) -> list[str]:
    longest = (
        (max(r.prefilled for r in requests), "prefilling {}"),
        (max(r.cached for r in requests), _CACHED),
        (max(r.generated for r in requests), "generating {}"),
    )
    return [words.format(_more_than(most)) for most, words in longest if most < limit]


def _more_than(count: int) -> str:
    return f"more than {count:,} tokens" if count else "any token"


def _corner(
    seen: set[Place],
    pair: tuple[int, int],
    bins: tuple[Sequence[Bin], Sequence[Bin], Sequence[Bin]],
    words: tuple[str, str],
    limit: int,
) -> str:
    """Return in words the corner of two axes, within what each reached alone, that no request hit.

    Of several the one that leaves most cells blank.
    """
    hit = {(place[pair[0]], place[pair[1]]) for place in seen}
    top = (max(first for first, _ in hit), max(second for _, second in hit))
    best, blank = None, 0
    for first in range(1, top[0] + 1):
        for second in range(1, top[1] + 1):
            low = bins[pair[0]][first].low + bins[pair[1]][second].low
            if low > limit or any(a >= first and b >= second for a, b in hit):
                continue
            area = (top[0] - first + 1) * (top[1] - second + 1)
            if area > blank:
                best, blank = (first, second), area
    if best is None:
        return ""
    lows = [round(bins[axis][place].low) - 1 for axis, place in zip(pair, best, strict=True)]
    return ", ".join(word.format(_more_than(low)) for word, low in zip(words, lows, strict=True))
