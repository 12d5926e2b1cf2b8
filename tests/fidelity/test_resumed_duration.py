"""The time of a resumed run is the sum of its parts, without what lay between them."""

from fidelity.records import Finding, Manifest
from fidelity.runs.resuming import spent_s
from fidelity.words import Outcome


def manifest(at):
    return Manifest(at=at, run_id="r", deployment="d", base_url="u", model="m")


def finding(at):
    return Finding(at=at, claim="c", suite="s", title="t", outcome=Outcome.PASS, reason="r")


def test_parts_add_up_and_the_night_between_them_does_not_count():
    records = [
        manifest("2026-01-01T10:00:00+00:00"),
        finding("2026-01-01T10:00:30+00:00"),
        finding("2026-01-01T10:01:00+00:00"),
        manifest("2026-01-02T09:00:00+00:00"),
        finding("2026-01-02T09:00:12.500+00:00"),
    ]
    assert spent_s(records) == 72.5
    assert spent_s(records[:3]) == 60.0


def test_an_empty_or_headless_journal_took_no_time():
    assert spent_s([]) == 0.0
    assert spent_s([manifest("2026-01-01T10:00:00+00:00")]) == 0.0
