"""The paths of a server that a run took, request by request."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fidelity.records import Exchange
from reports.view_journal import Journal
from reports.view_text import joined, plural

PATHS = ("cold", "cached", "chunked", "batched", "aborted")
"""Ways through a server that a fault can hide in; others are shown when a trial proves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Token counts of one exchange."""

    prefilled: int
    cached: int
    generated: int
    aborted: bool
    cache_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """One path: requests seen on it, trials that proved it, and its largest counts."""

    name: str
    requests: str
    proof: str
    largest: str
    blank: bool


def request_of(exchange: Exchange) -> Request | None:
    """Return the token counts of an exchange, None where the server gave none."""
    if exchange.prompt_tokens is None:
        return None
    cached = min(exchange.cached_tokens or 0, exchange.prompt_tokens)
    return Request(
        prefilled=exchange.prompt_tokens - cached,
        cached=cached,
        generated=exchange.completion_tokens or 0,
        aborted=exchange.aborted,
        cache_known=exchange.cached_tokens is not None,
    )


def paths_of(journal: Journal, requests: Sequence[Request]) -> tuple[PathRow, ...]:
    """Return every known path, those that were never taken too."""
    trials: dict[str, int] = defaultdict(int)
    claims: dict[str, set[str]] = defaultdict(set)
    for trial in journal.trials:
        for path in set(trial.paths):
            trials[path] += 1
            claims[path].add(trial.claim)
    for finding in journal.findings:
        for path in finding.paths:
            claims[path].add(finding.claim)
    seen = {
        "cold": [r for r in requests if r.cache_known and not r.cached],
        "cached": [r for r in requests if r.cached],
        "aborted": [r for r in requests if r.aborted],
    }
    names = [*PATHS, *sorted(set(claims) - set(PATHS))]
    return tuple(_path(name, seen.get(name), trials[name], len(claims[name])) for name in names)


def _path(name: str, requests: Sequence[Request] | None, trials: int, claims: int) -> PathRow:
    blank = not requests and not trials and not claims
    untold = "not told by token counts"
    count = untold if requests is None else plural(len(requests), "request")
    largest = ""
    if requests:
        largest = (
            f"{max(r.prefilled for r in requests):,} + {max(r.cached for r in requests):,} "
            f"+ {max(r.generated for r in requests):,}"
        )
    proofs = ["token counts"] if requests else []
    if trials:
        proofs.append(f"{plural(trials, 'trial')} of {plural(claims, 'claim')}")
    elif claims:
        proofs.append(plural(claims, "claim"))
    return PathRow(
        name=name,
        requests="never exercised" if blank else count,
        proof=joined(proofs) or "none",
        largest=largest,
        blank=blank,
    )
