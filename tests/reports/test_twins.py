"""The section of twins: every pair with its proof, its floor, its difference and where it parts."""

import msgspec

import reports
from fidelity.records import AnyRecord, Finding
from fidelity.words import Outcome
from reports.view import report_of
from tests.reports import pieces, runs
from tests.reports.page import read

EXACT = {
    "twin": "cached",
    "words": "",
    "proven": 64,
    "paths": ["cached", "cold"],
    "prompts": 64,
    "nats": 0.0,
    "null_nats": 0.0,
    "bound_nats": 1e-3,
    "rung": "exact",
    "position": [0.0, 0.0],
    "residue_16": {"0": [4, 0, 0.0], "1": [4, 0, 0.0]},
    "depth_frac": {"0": [8, 0, 0.0]},
}
PARTED = EXACT | {
    "twin": "decoded",
    "nats": 2.5,
    "rung": "drift",
    "position": [0.0, 2.5],
    "residue_16": {"0": [4, 0, 0.0], "1": [4, 4, 2.5]},
}


def run_with(*findings: Finding) -> list[AnyRecord]:
    records = runs.faithful()
    return [*records[:-1], *findings, records[-1]]


def twin(claim: str, profile: dict, outcome: Outcome = Outcome.PASS) -> Finding:
    passed = pieces.simple_pass(claim, claim)
    return msgspec.structs.replace(
        passed, suite=claim.partition("/")[0], profile=profile, outcome=outcome, reason="they part"
    )


def test_a_run_without_twins_has_no_such_section() -> None:
    assert report_of(runs.faithful()).twins is None
    assert 'id="twins"' not in reports.render_html(runs.faithful())


def test_twins_that_part_come_first_with_a_profile_and_exact_ones_have_none() -> None:
    found = report_of(
        run_with(
            twin("twins_cache/a_hit", EXACT),
            twin("twins_phases/decoding", PARTED, Outcome.FAIL),
        )
    ).twins
    assert found is not None
    assert found.summary == "1 of 2 pairs of paths agree, 1 to the bit"
    parted, exact = found.rows
    assert (parted.name, parted.rung, parted.difference) == ("decoded", "drift", "2.5")
    assert parted.reason == "they part"
    by_position, by_residue, _ = parted.drawings
    assert [bar.beyond for bar in by_position.bars] == [False, True]
    assert [bar.beyond for bar in by_residue.bars] == [False, True]
    assert by_position.bound_y is not None
    assert (exact.drawings, exact.nowhere) == ((), "nowhere")
    assert exact.proof == "cached, cold: 64 of 64 prompts"


def test_the_page_shows_them_as_a_table() -> None:
    records = run_with(twin("twins_phases/decoding", PARTED, Outcome.FAIL))
    table = next(read(reports.render_html(records)).one("twins").every("table"))
    (row,) = [cells for cells in table.rows if "twins_phases/decoding" in cells[0]]
    assert row[0].startswith("fail")
    assert row[2:4] == ["0", "2.5"]


def test_a_twin_that_was_not_asked_shows_that() -> None:
    bare = msgspec.structs.replace(
        twin("twins_cache/a_hit", EXACT, Outcome.NOT_APPLICABLE), profile=None
    )
    found = report_of(run_with(bare)).twins
    assert found is not None
    assert (found.rows[0].proof, found.rows[0].rung) == ("not taken", "—")
