"""Word lists: one word or name a line, in a text file of that name beside this one."""

from functools import cache
from pathlib import Path


@cache
def words(name: str) -> tuple[str, ...]:
    """The lines of `vocabulary/NAME.txt`."""
    path = Path(__file__).with_name(f"{name}.txt")
    return tuple(path.read_text(encoding="utf-8").split("\n")[:-1])
