"""Does a diff change the rules by which it is judged? Each that it bends is told by its name.

Rules are [gate], the switches of patches, the deployment that is measured, and how pytest is
configured. What asks for more is free: a longer `watch`, a smaller margin.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fidelity.gate.items import Item, shown
from fidelity.gate.pytest_files import PytestFiles
from fidelity.gate.repository import Change, Repository
from fidelity.words import Budget, Outcome

RULE = "rules-changed"
_MAY_GROW = ("watch", "shared", "microtest_support", "suites")
_FREE = ("microtest_s",)
"""A time limit can only end in "undecided"."""
_SWITCHES = ("on", "off", "active_when", "unconditional")
_OF_RUNS = ("harness", "request", "budgets")
_MARGIN = 0.1
_NOTHING: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """One rule that the diff changes.

    Attributes:
        name: what accepts it: `gate.watch`, `patch.NAME.on`, `deployments.NAME`, or a file.
        what: was and is, in words.
        change: its place.
    """

    name: str
    what: str
    change: Change


def rule_changes(
    repository: Repository, changes: Sequence[Change], config: str, microtests: Sequence[str]
) -> list[RuleChange]:
    """Return every rule that a diff changes, except for what provably asks for more.

    Args:
        repository: the work tree and its base.
        changes: of the diff.
        config: path of fidelity.toml.
        microtests: paths of all microtests, now and at the base.
    """
    found = []
    place = next((change for change in changes if change.path == config), None)
    old = repository.at_base(config) if place is not None else None
    if place is not None and old is not None:
        was, now = _table(old), _table((repository.root / config).read_bytes())
        found += [RuleChange(name=n, what=w, change=place) for n, w in _of_config(was, now)]
    files = PytestFiles(repository, microtests, (repository.at_base(config) or b"").decode())
    for change in changes:
        if what := files.bent_by(change):
            found.append(RuleChange(name=change.path, what=what, change=change))
    return found


def rule_items(found: Sequence[RuleChange], accepted: Sequence[str]) -> list[Item]:
    """Return an item a rule: a fail, unless it was accepted by its name."""
    items = []
    for rule in found:
        free = rule.name in accepted
        words = f"the gate's own rules changed: {shown(rule.what)}"
        items.append(
            Item(
                rule=RULE,
                subject=shown(rule.name),
                outcome=Outcome.PASS if free else Outcome.FAIL,
                message=f"accepted by --accept-rule: {words}"
                if free
                else f"{words}; --accept-rule {shown(rule.name)} lets it through",
                path=rule.change.path,
                line=rule.change.line,
            )
        )
    return items


def _table(text: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(text.decode("utf-8", "replace"))
    except tomllib.TOMLDecodeError:
        return {}  # told by whoever reads the file for its entries


def _of_config(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    old, new = was.get("gate", {}), now.get("gate", {})
    for key in sorted({*old, *new}):
        if not _as_strict(key, old.get(key), new.get(key)):
            yield f"gate.{key}", _words(f"[gate] {key}", old.get(key), new.get(key))
    patches = {entry.get("name"): entry for entry in now.get("patch", [])}
    for entry in was.get("patch", []):
        name = entry.get("name")
        for key in _SWITCHES if name in patches else ():
            before, after = entry.get(key), patches[name].get(key)
            if before not in _NOTHING and before != after:
                yield f"patch.{name}.{key}", _words(f"{key} of {name}", before, after)
    deployment = old.get("deployment")
    before = was.get("deployments", {}).get(deployment)
    after = now.get("deployments", {}).get(deployment)
    if before != after:
        yield f"deployments.{deployment}", f"[deployments.{deployment}], which the gate measures"
    for key in _OF_RUNS:
        if was.get(key, {}) != now.get(key, {}):
            yield key, f"[{key}], which holds for its suites"


def _as_strict(key: str, old: Any, new: Any) -> bool:
    """Tell whether a key of [gate] asks for as much as it did."""
    if old == new or (old in _NOTHING and key not in {"microtest_command", "effect_margin"}):
        return True
    if key in _MAY_GROW:
        return set(old) <= set(new or ())
    if key == "effect_margin":
        return (_MARGIN if new is None else float(new)) <= (_MARGIN if old is None else float(old))
    if key == "values":
        return new is not None and all(new.get(name) == value for name, value in old.items())
    if key == "budget":
        order = [str(budget) for budget in Budget]
        return new in order and old in order and order.index(new) > order.index(old)
    return key in _FREE


def _words(name: str, old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list):
        lost = [text for text in old if text not in new]
        more = [text for text in new if text not in old]
        parts = [f"lost {_short(lost)}"] * bool(lost) + [f"got {_short(more)}"] * bool(more)
        return f"{name} {' and '.join(parts) or 'is in another order'}"
    return f"{name} was {_short(old)}, is {_short(new)}"


def _short(value: Any) -> str:
    return "nothing" if value in _NOTHING else str(value)[:120]
