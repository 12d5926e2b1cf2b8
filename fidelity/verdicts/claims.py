"""Which tests are claims: those that ask for the fixture `measure` of this plugin."""

import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from fidelity.config.kinds import nearest
from fidelity.errors import ConfigError
from fidelity.records import Manifest, read_journal
from fidelity.runs.journal import FILE_NAME
from fidelity.verdicts.decisions import Claim

FIXTURE = "measure"
MARK = "fidelity_requires"
"""Mark of a test whose claim is part of a run only where the run has what it names."""
REQUIREMENTS = {
    "golden": "a golden deployment to compare with: --fidelity-golden NAME_OR_URL",
    "router": "a router and workers: [deployments.NAME.roles] in fidelity.toml",
    "encoding": 'a chat encoding with golden vectors: encoding = "NAME" in fidelity.toml',
}
_MOST_NAMED = 30
_FIRST_SENTENCE = re.compile(r"\A(.+?)(?:\.\s|\.\Z|\n\s*\n|\Z)", re.DOTALL)


def claim_of(item: pytest.Item) -> Claim:
    """Return the claim of a test: "<file stem>/<test name>[<param>]", both without "test_"."""
    suite = item.path.stem.removeprefix("test_")
    name = item.name.removeprefix("test_")
    return Claim(id=f"{suite}/{name}", suite=suite, title=_title(item) or name.replace("_", " "))


def _title(item: pytest.Item) -> str:
    documentation = getattr(getattr(item, "obj", None), "__doc__", None) or ""
    found = _FIRST_SENTENCE.match(documentation.strip())
    return " ".join(found.group(1).split()) if found else ""


def left_out(items: Sequence[pytest.Item], present: Collection[str]) -> dict[str, str]:
    """Return the claims that need what the run does not have: id -> that, in words.

    Args:
        items: tests that make claims.
        present: names of `REQUIREMENTS` that the run has.

    Raises:
        ConfigError: a test requires something that nobody knows.
    """
    missing: dict[str, str] = {}
    for item in items:
        for name in (name for mark in item.iter_markers(MARK) for name in mark.args):
            if name not in REQUIREMENTS:
                known = ", ".join(REQUIREMENTS)
                raise ConfigError(f"{item.nodeid} requires {name!r}, which is none of: {known}")
            if name not in present:
                missing.setdefault(claim_of(item).id, REQUIREMENTS[name])
    return missing


def part_of_run(
    items: Sequence[pytest.Item], present: Collection[str]
) -> tuple[list[pytest.Item], dict[str, str]]:
    """Return the tests whose claims the run can make, and what `left_out` says of the others.

    Raises:
        ConfigError: as `left_out`, or none can be made.
    """
    missing = left_out(items, present)
    kept = [item for item in items if claim_of(item).id not in missing]
    if missing and not kept:
        raise ConfigError(f"nothing to measure: {left_out_words(missing)}")
    return kept, missing


def left_out_words(missing: Mapping[str, str]) -> str:
    """Say which claims are no part of a run, grouped by what they need."""
    needs = Counter(missing.values())
    return "; ".join(
        f"{count} {'claim needs' if count == 1 else 'claims need'} {need},"
        f" and {'is' if count == 1 else 'are'} no part of this run"
        for need, count in needs.items()
    )


def refuse_unmatched(
    required: Sequence[str], claims: Collection[str], *, suites: Collection[str], whole: bool
) -> None:
    """Refuse a pattern of `required` that is no claim's: it would be kept whatever is broken.

    Args:
        required: patterns of claims that a deployment must be measured by.
        claims: ids of all that were collected, measured or left out.
        suites: names of all suites there are, collected or not.
        whole: every claim of the collected suites was collected.

    Raises:
        ConfigError: names the pattern and the nearest match.
    """
    collected = {claim.partition("/")[0] for claim in claims}
    for pattern in required:
        if any(fnmatch.fnmatchcase(claim, pattern) for claim in claims):
            continue
        suite = pattern.partition("/")[0]
        elsewhere = any(fnmatch.fnmatchcase(name, suite) for name in {*suites} - collected)
        here = any(fnmatch.fnmatchcase(name, suite) for name in collected)
        if elsewhere or (here and not whole):
            continue  # a part of the suites says nothing of the others
        names = sorted(claims) if here else sorted({*suites, *collected})
        hint = nearest(pattern if here else suite, names)
        raise ConfigError(
            f"required = [{pattern!r}] of the deployment is no claim's name{hint}."
            f" {'Claims' if here else 'Suites'}: {', '.join(names[:_MOST_NAMED])}"
        )


def refuse_double_ids(items: Mapping[str, Claim]) -> None:
    """Refuse two tests that make one claim.

    Raises:
        ConfigError: names both.
    """
    seen: dict[str, str] = {}
    for nodeid, claim in items.items():
        if claim.id in seen:
            raise ConfigError(
                f"two tests make the claim {claim.id}: {seen[claim.id]} and {nodeid}; rename one"
            )
        seen[claim.id] = nodeid


def replayed_items(items: Sequence[pytest.Item], folder: Path | None) -> list[pytest.Item]:
    """Return the tests whose claims the journal in `folder` planned: of a replay, one.

    Raises:
        JournalError: no journal there.
        ConfigError: none of the tests makes that claim.
    """
    first = next(read_journal((folder or Path()) / FILE_NAME), None)
    planned = first.planned_claims if isinstance(first, Manifest) else ()
    chosen = [item for item in items if claim_of(item).id in planned]
    if not chosen:
        raise ConfigError(f"no test here makes the claim {', '.join(planned) or '(none)'}")
    return chosen
