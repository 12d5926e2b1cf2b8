"""How numbers and texts of a run are put into words, and how hostile text is made harmless to read.

Nothing here escapes HTML or Markdown: that is the renderer's job, for every string that it prints.
"""

import hashlib
import re
import unicodedata

MISSING = "not reported"
TITLE_CHARS = 240

_INVISIBLE = {0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF}
_INVISIBLE |= {*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xE0000, 0xE0080)}
_SPECIAL = re.compile("[^\n\t\x20-\x7e\xa1-\u02ff]")


def visible(text: str) -> str:
    """Return `text` with control, bidi and invisible characters written as `⟨U+202E⟩`.

    A page that prints them raw can be made to show something else than the model said. Line
    feeds, tabs and the joiners that scripts need (U+200C, U+200D) stay. Lone surrogates, which
    no UTF-8 file can hold, are written out too.
    """
    return _SPECIAL.sub(_spell_out, text.replace("\r\n", "\n"))


def _spell_out(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    hidden = code in _INVISIBLE or unicodedata.category(character) in {"Cc", "Cs"}
    return f"⟨U+{code:04X}⟩" if hidden else character


def cut(text: str, limit: int = 900) -> str:
    """Return `text`, or two thirds of `limit` from its head and one third from its tail.

    The note between them says how many characters are not shown.
    """
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, len(text) - limit // 3
    return f"{text[:head]}{_gap(text[head:tail])}{text[tail:]}"


def cut_around(text: str, word: str, limit: int) -> str:
    """Return `text` cut to about `limit` characters, with the first `word` and what surrounds it.

    `word` must be in `text`.
    """
    short = cut(text, limit)
    if word in short:
        return short
    place, third = text.index(word), limit // 3
    start, end = max(third, place - third // 2), min(len(text), place + len(word) + third // 2)
    tail = max(end, len(text) - third)
    middle, last = text[start:end], text[tail:]
    return f"{text[:third]}{_gap(text[third:start])}{middle}{_gap(text[end:tail])}{last}"


_CUT_BEFORE = re.compile(r" \.\.\. \[(\d{1,12}) characters\] \.\.\. ")
"""What stands in a journal where the harness cut a text."""


def _gap(hidden: str) -> str:
    """Return the note in place of `hidden`, which may hold a place that was cut before."""
    count = len(_CUT_BEFORE.sub("", hidden))
    count += sum(int(match[1]) for match in _CUT_BEFORE.finditer(hidden))
    return f" … [{count:,} characters not shown] … " if count else ""


def one_line(text: str, limit: int = 160) -> str:
    """Return `text` on one line, cut to `limit` characters."""
    flat = " ".join(text[: limit * 4].split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def thousands(number: int | None) -> str:
    """Return `12,345`, or the word for a figure that the server did not give."""
    return MISSING if number is None else f"{number:,}"


def tokens(number: int | None) -> str:
    """Return `12,345 tokens`, or the word for a figure that the server did not give."""
    return MISSING if number is None else plural(number, "token")


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Return `1 trial`, `2 trials`; `nouns` where an s does not do."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def figure(number: float | None, digits: int = 3) -> str:
    """Return a measure with `digits` decimals, without idle zeros: `0.8`, `1`, `0.952`.

    A measure too small to show that way keeps two significant digits: `3.1e-05`.
    """
    if number is None:
        return MISSING
    if number != 0 and abs(number) < 10**-digits:
        return f"{number:.1e}"
    shown = f"{number:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def duration(seconds: float | None) -> str:
    """Return `38 ms`, `4.2 s`, `2 min 41 s` or `1 h 03 min`."""
    if seconds is None:
        return MISSING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def when(stamp: str) -> str:
    """Return an ISO 8601 time in UTC as `2026-11-29 21:04 UTC`; anything else as it stands."""
    match = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)", stamp)
    return f"{match[1]} {match[2]} UTC" if match else stamp or "no time recorded"


def joined(words: list[str] | tuple[str, ...]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def anchor(prefix: str, name: str) -> str:
    """Return an id for an HTML element: stable, unique per name, safe in a URL fragment."""
    plain = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-").lower()[:40]
    digest = hashlib.blake2s(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{prefix}-{plain}-{digest}" if plain else f"{prefix}-{digest}"
