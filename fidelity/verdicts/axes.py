"""The axes of a trial in words, and the pattern that misses make along them.

A residue of the length is named only where it is what the misses have in common.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from fidelity.records import Trial

MODULI = (4, 16, 64, 128)
LENGTH = "length_tokens"
DEPTH = "depth_frac"
KIND = "needle_kind"
PROMPT = "prompt_tokens"
RESIDUE = "residue_"

MOST_AXES = 4
_VALUE_CHARS = 60
_NAMES = {LENGTH: "length", DEPTH: "depth", KIND: "kind", PROMPT: "prompt"}


def axis_name(axis: str) -> str:
    """Return the name of an axis as a reader says it."""
    return _NAMES.get(axis, axis.replace("_tokens", "").replace("_frac", "").replace("_", " "))


def axis_value(axis: str, value: str | float) -> str:
    """Return one value of an axis with its unit."""
    if isinstance(value, str):
        return value
    if axis.endswith("_tokens"):
        return f"{value:,.0f} tokens"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:.2f}".rstrip("0").rstrip(".")


def residue_words(modulus: int, residue: int) -> str:
    """Return the name of a residue class of prompt lengths."""
    return f"prompt length ≡ {residue} (mod {modulus})"


def class_words(name: str) -> str:
    """Return a class that is named "axis=value" as a reader says it."""
    axis, _, value = name.partition("=")
    modulus = axis.removeprefix(RESIDUE)
    if axis.startswith(RESIDUE) and modulus.isdecimal() and value.isdecimal():
        return residue_words(int(modulus), int(value))
    number = value.removesuffix(".0")
    shown = axis_value(axis, int(number) if number.isdecimal() else value)
    return f"{axis_name(axis)} {shown}"


def where(trial: Trial) -> str:
    """Return where in its sweep a trial lies, in a few words; "" when its cell does not tell.

    Left out are residues, axes at zero, and the prompt's length beside the one that was planned.
    """
    idle = {PROMPT} if LENGTH in trial.cell else set()
    shown = [
        f"{axis_name(axis)} {axis_value(axis, value)[:_VALUE_CHARS]}"
        for axis, value in trial.cell.items()
        if axis not in idle and not axis.startswith(RESIDUE) and (value or axis == DEPTH)
    ]
    return ", ".join(shown[:MOST_AXES])


def number(trial: Trial, axis: str) -> float | None:
    """Return the value of a numeric axis, None where the trial has none."""
    value = trial.cell.get(axis)
    return None if value is None or isinstance(value, str | bool) else float(value)


def prompt_length(trial: Trial) -> int | None:
    """Return the prompt of the deciding request in the server's own tokens.

    That is what the server counted in the last exchange; where it reports nothing, the length that
    was planned.
    """
    for exchange in reversed(trial.exchanges):
        if exchange.prompt_tokens is not None:
            return exchange.prompt_tokens
    planned = number(trial, LENGTH)
    return None if planned is None else round(planned)


def pattern(trials: Sequence[Trial]) -> str:
    """Return what the misses have in common, as a sentence, or "" where nothing stands out.

    A class stands out when it holds every miss (two at least), most of its trials missed, and
    the trials outside it, of which there must be as many as inside at least, are all right.
    """
    scored = [trial for trial in trials if trial.ok is not None]
    missed = {trial.id for trial in scored if not trial.ok}
    if len(missed) < 2 or len(missed) == len(scored):
        return ""
    candidates = []
    for rank, (label, members) in enumerate(_classes(scored)):
        inside = {trial.id for trial in members}
        outside = len(scored) - len(inside)
        if missed <= inside and outside >= len(inside) and 2 * len(missed) > len(inside):
            candidates.append((-len(missed) / len(inside), rank, label, len(inside), outside))
    if not candidates:
        return ""
    _, _, label, inside_count, outside = min(candidates)
    trial_word = "trial" if inside_count == 1 else "trials"
    return (
        f"All {len(missed)} misses lie at {label}: {len(missed)} of "
        f"{inside_count:,} {trial_word} there, 0 of {outside} elsewhere."
    )


def _classes(trials: Iterable[Trial]) -> list[tuple[str, list[Trial]]]:
    """Return the classes to look at, the simplest explanation first."""
    by_class: dict[tuple[int, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        length = prompt_length(trial)
        if length is not None:
            for modulus in MODULI:
                by_class[modulus, residue_words(modulus, length % modulus)].append(trial)
        for axis, value in trial.cell.items():
            if not axis.startswith(RESIDUE) and axis != PROMPT:
                label = f"{axis_name(axis)} {axis_value(axis, value)}"
                by_class[0, label].append(trial)
        if trial.exchanges and (replica := trial.exchanges[-1].replica):
            by_class[0, f"replica {replica[:_VALUE_CHARS]}"].append(trial)
    classes = [(label, members) for (_, label), members in sorted(by_class.items(), key=_rank)]
    return classes + _long_ends(trials)


def _rank(item: tuple[tuple[int, str], list[Trial]]) -> tuple[int, str]:
    return item[0]


def _long_ends(trials: Iterable[Trial]) -> list[tuple[str, list[Trial]]]:
    """Return the classes "this length or more"."""
    lengths = [(length, trial) for trial in trials if (length := number(trial, LENGTH)) is not None]
    edges = sorted({length for length, _ in lengths})
    return [
        (
            f"{edge:,.0f} tokens or more",
            [trial for length, trial in lengths if length >= edge],
        )
        for edge in edges[1:]
    ]
