"""What a run never exercised, in words: beyond each axis, and the largest empty corners."""

from collections.abc import Sequence

from reports.view_bins import Bin
from reports.view_text import joined

Place = tuple[int, int, int]
"""Bins of prefilled, cached and generated tokens."""


def never_of(
    seen: set[Place], bins: Sequence[Bin], generated: Sequence[Bin], limit: int
) -> tuple[str, ...]:
    """Return what was never exercised: beyond each axis, then the largest empty corners."""
    sentences = []
    beyond = [
        f"{phrase} {edges[top].high:,.0f} tokens"
        for axis, edges, phrase in (
            (0, bins, "prefilling more than"),
            (1, bins, "a cached prefix of more than"),
            (2, generated, "generating more than"),
        )
        if edges[top := max(place[axis] for place in seen)].high < limit
    ]
    if beyond:
        sentences.append(f"Never exercised at all: {joined(beyond)}.")
    corners = [
        corner
        for axes, words in (
            ((0, 2), ("prefilling more than {} tokens", "then generating more than {}")),
            ((1, 2), ("a cached prefix of more than {} tokens", "then generating more than {}")),
            ((1, 0), ("a cached prefix of more than {} tokens", "then prefilling more than {}")),
        )
        if (corner := _corner(seen, axes, (bins, bins, generated), words, limit))
    ]
    if corners:
        sentences.append(f"Never exercised together: {'; '.join(corners)}.")
    return tuple(sentences)


def _corner(
    seen: set[Place],
    axes: tuple[int, int],
    edges: tuple[Sequence[Bin], Sequence[Bin], Sequence[Bin]],
    words: tuple[str, str],
    limit: int,
) -> str:
    """Return in words the corner of two axes, within what each reached alone, that no request hit.

    Of several the one that leaves most cells blank.
    """
    pairs = {(place[axes[0]], place[axes[1]]) for place in seen}
    top = (max(first for first, _ in pairs), max(second for _, second in pairs))
    best, blank = None, 0
    for first in range(1, top[0] + 1):
        for second in range(1, top[1] + 1):
            low = edges[axes[0]][first].low + edges[axes[1]][second].low
            if low > limit or any(a >= first and b >= second for a, b in pairs):
                continue
            area = (top[0] - first + 1) * (top[1] - second + 1)
            if area > blank:
                best, blank = (first, second), area
    if best is None:
        return ""
    lows = [edges[axis][place].low - 1 for axis, place in zip(axes, best, strict=True)]
    return ", ".join(word.format(f"{low:,.0f}") for word, low in zip(words, lows, strict=True))
