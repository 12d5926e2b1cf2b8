"""Deals the axes of a sweep out to its trials, balanced and independent of each other."""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def dealt(items: Sequence[Item], count: int, draw: random.Random) -> list[Item]:
    """Return `count` items in random order, each as often as any other, give or take one."""
    rounds = -(-count // len(items))
    chosen = [item for _ in range(rounds) for item in draw.sample(items, len(items))][:count]
    draw.shuffle(chosen)
    return chosen
