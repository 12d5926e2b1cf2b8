"""JSON from a server nobody here wrote: every access says what was expected and what was there."""

import json
import math
from typing import Any


class Malformed(ValueError):
    """The body is not of the shape that the API documents; the message names the field."""


def parse(text: str | bytes) -> Any:
    """Return the JSON value of a text.

    NaN and Infinity are read, since servers written in Python send them as logprobs.

    Raises:
        Malformed: not UTF-8, not JSON, or nested too deeply.
    """
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 ({error.reason} at byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        shown = text[:80].decode(errors="replace") if isinstance(text, bytes) else text[:80]
        raise Malformed(f"not JSON: {shown!r}") from error


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Return an object; null counts as empty."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise Malformed(f"{where} is {_kind(value)}, not an object")


def sequence(value: Any, where: str) -> list[Any]:
    """Return an array; null counts as empty."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise Malformed(f"{where} is {_kind(value)}, not an array")


def text(value: Any, where: str) -> str:
    """Return a string; null counts as ""."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise Malformed(f"{where} is {_kind(value)}, not a string")


def whole(value: Any, where: str) -> int | None:
    """Return a whole number >= 0; null is None."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise Malformed(f"{where} is {_kind(value)}, not a whole number >= 0")
    return value


def number(value: Any, where: str) -> float | None:
    """Return a number; null and NaN are None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{where} is {_kind(value)}, not a number")
    try:
        found = float(value)
    except OverflowError as error:
        raise Malformed(f"{where} is a number beyond any logprob") from error
    return None if math.isnan(found) else found


def whole_text(value: str, where: str) -> str:
    """Join surrogate pairs that arrived in two deltas.

    Raises:
        Malformed: half a pair is left, which no UTF-8 text can hold.
    """
    try:
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise Malformed(f"{where} holds an unpaired surrogate") from error


def _kind(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
