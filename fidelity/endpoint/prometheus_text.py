"""Prometheus text to numbers: enough to read gauges, with hostile input in mind."""

import re

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?\s*\Z")
_MAX_LINES = 50_000


def parse_metrics(text: str) -> dict[str, float]:
    """Return each metric's value summed over its label sets; unreadable lines are left out."""
    values: dict[str, float] = {}
    for line in text.splitlines()[:_MAX_LINES]:
        if not line or line.startswith("#"):
            continue
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        values[found[1]] = values.get(found[1], 0.0) + value
    return values


def pick(values: dict[str, float], names: tuple[str, ...]) -> float | None:
    """Return the first of these metrics that is there."""
    return next((values[name] for name in names if name in values), None)
