"""Misses in words that fit a terminal: where the first lies, what was said, what was right.

What a model said is hostile: it is bounded, on one line, and escaped.
"""

from collections.abc import Sequence

from fidelity.records import Trial
from fidelity.verdicts.axes import pattern, where

QUOTED_CHARS = 60


def quoted(text: str, limit: int = QUOTED_CHARS) -> str:
    """Return a text in quotes on one line, bounded, with everything invisible escaped."""
    flat = " ".join(text[: 8 * limit].split())
    return repr(flat if len(flat) <= limit else f"{flat[: limit - 3]}...")


def said_in(trial: Trial) -> str:
    """Return what the deciding request of a trial answered, quoted; "nothing" when empty."""
    if not trial.exchanges:
        return "nothing"
    last = trial.exchanges[-1]
    for text in (last.text, *(call.arguments for call in last.tool_calls)):
        if text.strip():
            return quoted(text)
    return f"{quoted(last.reasoning)} (reasoning)" if last.reasoning.strip() else "nothing"


def miss_words(trial: Trial) -> str:
    """Return one miss: `trial t01, length 2,048 tokens, depth 0.5: said '17', right is '4821'`."""
    place = where(trial)
    words = f"trial {trial.id}{f', {place}' if place else ''}"
    if trial.details.get("parts"):
        words += f": {trial.details['parts']}"
    elif trial.exchanges:
        words += f": said {said_in(trial)}"
        if trial.expected:
            words += f", right is {quoted(trial.expected)}"
    notes = [str(trial.score)] if trial.score not in {None, "wrong"} else []
    notes += [f"lost in {trial.lost}"] if trial.lost else []
    return f"{words} ({', '.join(notes)})" if notes else words


def sentence_of_misses(trials: Sequence[Trial]) -> str:
    """Return what the misses among trials have in common, and the first of them; "" if none."""
    missed = [trial for trial in trials if trial.ok is False]
    if not missed:
        return ""
    common = pattern(trials)
    common = f"{common[:1].lower()}{common[1:].removesuffix('.')}; " if common else ""
    return f"{common}{'first miss' if len(missed) > 1 else 'the miss'}: {miss_words(missed[0])}"
