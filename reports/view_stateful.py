"""The shortest script that failed: what was sent, what came back, and what comes back alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.records import Exchange, Finding, Trial
from fidelity.words import Outcome
from reports.view_journal import Journal
from reports.view_text import cut, one_line, plural

MAX_ROWS = 12
CHARACTERS = 160
_ALONE = ": alone"
_AGAIN = ": alone, again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request of the script. `differs`: it is the one that was not what it is alone."""

    label: str
    tokens: str
    asked: str
    said: str
    alone: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedScript:
    """One claim's shortest failing script."""

    claim: str
    title: str
    found: str
    steps: tuple[str, ...]
    rows: tuple[Row, ...]
    hidden: str
    again: str
    isolation: str
    command: str
    files: str


def scripts_of(journal: Journal) -> tuple[FailedScript, ...]:
    """Return the scripts of all claims that failed by one."""
    trials = {trial.id: trial for trial in journal.trials}
    found = []
    for finding in journal.findings:
        script = (finding.profile or {}).get("script")
        if finding.outcome is Outcome.FAIL and isinstance(script, Mapping):
            found.append(_script(finding, script, trials.get(str(script.get("trial")))))
    return tuple(found)


def _script(finding: Finding, script: Mapping[str, Any], trial: Trial | None) -> FailedScript:
    rows = _rows(trial) if trial is not None else []
    hidden = max(0, len(rows) - MAX_ROWS)
    steps = script.get("steps")
    files = script.get("files")
    return FailedScript(
        claim=one_line(finding.claim, 200),
        title=one_line(finding.title, 300),
        found=cut(trial.error, 600) if trial is not None else "",
        steps=tuple(one_line(str(step), 200) for step in _some(steps)[:40]),
        rows=tuple(rows[:MAX_ROWS]),
        hidden=f"{plural(hidden, 'request')} more not shown" if hidden else "",
        again=one_line(str(script.get("again", "")), 200),
        isolation=str(trial.cell.get("isolation", ""))[:100] if trial is not None else "",
        command=one_line(str(script.get("command", "")), 600),
        files=", ".join(one_line(str(name), 120) for name in _some(files)[:4]),
    )


def _some(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _rows(trial: Trial) -> list[Row]:
    alone = {e.label.removesuffix(_ALONE): e for e in trial.exchanges if e.label.endswith(_ALONE)}
    played = [e for e in trial.exchanges if not e.label.endswith((_ALONE, _AGAIN))]
    return [_row(exchange, alone.get(exchange.label), trial) for exchange in played]


def _row(exchange: Exchange, alone: Exchange | None, trial: Trial) -> Row:
    return Row(
        label=one_line(exchange.label, 120),
        tokens=_tokens(exchange),
        asked=cut(_last_asked(exchange.messages), CHARACTERS),
        said="(left)" if exchange.aborted else _said(exchange),
        alone="" if alone is None else _said(alone),
        differs=trial.error.startswith(exchange.label) and bool(exchange.label),
    )


def _tokens(exchange: Exchange) -> str:
    if exchange.prompt_tokens is None:
        return ""
    cached = exchange.cached_tokens
    return f"{exchange.prompt_tokens:,}" + ("" if cached is None else f" ({cached:,} cached)")


def _last_asked(messages: Sequence[Mapping[str, Any]]) -> str:
    return str(messages[-1].get("content", "")) if messages else ""


def _said(exchange: Exchange) -> str:
    if exchange.error:
        return cut(exchange.error, CHARACTERS)
    return cut(exchange.text or exchange.reasoning or "(empty answer)", CHARACTERS)
