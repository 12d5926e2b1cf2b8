"""Findings and the claims table: every figure is there, the worst comes first."""

import msgspec

import reports
from fidelity.records import AnyRecord, Finding, Part
from fidelity.words import Concern, Ladder, Outcome
from reports.view import report_of
from tests.reports import pieces, runs
from tests.reports.page import Node, read


def claims_table(records: list[AnyRecord]) -> Node:
    return next(read(reports.render_html(records)).one("claims").every("table"))


def test_the_claims_table_shows_counts_bounds_threshold_and_what_a_pass_could_have_seen() -> None:
    rows = claims_table(runs.faithful()).rows
    row = next(row for row in rows if row[1:] and row[1].startswith("recall >= 0.80 at 256"))
    assert row[0] == "pass"
    assert "Could have seen: 44 trials show damage to 6.6%" in row[1]
    assert row[2] == "44/44"
    assert row[3].endswith("0.934 to 1 threshold 0.8")


def test_a_failed_claim_shows_its_ladder_and_its_blame() -> None:
    rows = claims_table(runs.unfaithful_after_abort()).rows
    row = next(row for row in rows if row[0] == "fail")
    assert row[2:] == [
        "5/14",
        "bounds 0.153 to 0.61, threshold 0.8 0.153 to 0.61 threshold 0.8",
        "structural blame: the deployment",
    ]


def test_a_pass_that_does_not_state_what_it_could_have_seen_is_exposed() -> None:
    records = runs.faithful()
    claim = "plumbing/usage_adds_up"
    bare = msgspec.structs.replace(
        pieces.simple_pass(claim, "usage adds up"), minimum_detectable_effect=""
    )
    rows = claims_table([*records[:-1], bare, records[-1]]).rows
    assert ["pass", "usage adds up Could have seen: not stated"] in [row[:2] for row in rows]


def test_passes_with_the_same_figures_fold_into_titles_and_nothing_else_does() -> None:
    checks = [pieces.simple_pass(f"wire/check_{n}", f"check {n} holds") for n in range(9)]
    checks[4] = msgspec.structs.replace(checks[4], outcome=Outcome.FAIL)
    checks[8] = msgspec.structs.replace(checks[8], n=7, k=7)
    records = runs.faithful()
    (group,) = (
        found
        for found in report_of([*records[:-1], *checks, records[-1]]).claims.suites
        if found.suite == "wire"
    )
    assert [(row.title, row.alike) for row in group.folded] == [
        ("check 0 holds", ("check 1 holds", "check 2 holds", "check 3 holds")),
        ("check 4 holds", ()),
        *((f"check {n} holds", ()) for n in (5, 6, 7, 8)),
    ]


def test_the_last_finding_of_a_claim_counts() -> None:
    records = runs.faithful()
    claim = "plumbing/usage_adds_up"
    first = msgspec.structs.replace(
        pieces.simple_pass(claim, "usage adds up"), outcome=Outcome.FAIL, provisional=True
    )
    report = report_of([records[0], first, *records[1:]])
    assert report.cards == ()
    assert report.claims.summary == "14 of 14 claims passed"


def test_a_card_says_what_the_misses_were_and_how_the_other_arm_did() -> None:
    (card,) = report_of(runs.unfaithful_after_abort()).cards
    assert card.reason.startswith("follow-up right 5/14 after an abort")
    assert card.evidence == (
        "Right by arm: after abort 5/14 and no abort 14/14.",
        "Answers that missed: 9 amnesic.",
        "Where it was lost, by token accounting: 9 in rendering.",
    )
    assert [miss.seed for miss in card.misses] == [1, 2, 4, 5, 7, 8]
    assert card.more == "3 further trials in run.jsonl"
    assert card.misses[0].tokens == "61 + 9"
    assert card.misses[0].got == "This is the first message of our conversation."


def test_a_residue_that_holds_every_miss_is_named() -> None:
    cards = report_of(runs.unfaithful_at_a_residue()).cards
    assert [card.badge.word for card in cards] == ["fail", "inconclusive"]
    assert cards[0].pattern == (
        "All 66 misses lie at prompt length ≡ 3 (mod 4): 66 of 66 trials there, 0 of 198 elsewhere."
    )
    first = read(reports.render_html(runs.unfaithful_at_a_residue())).one("verdict")
    assert [line.text for line in first.every("p", "clue")] == [cards[0].pattern]


def test_the_worst_on_the_ladder_comes_first_and_failures_before_the_rest() -> None:
    def finding(
        claim: str, outcome: Outcome, ladder: Ladder | None, concern: Concern = Concern.READING
    ) -> AnyRecord:
        return msgspec.structs.replace(
            pieces.simple_pass(claim, claim),
            outcome=outcome,
            ladder=ladder,
            reason=claim,
            concern=concern,
        )

    records = [
        finding("a/skipped", Outcome.NOT_APPLICABLE, None),
        finding("a/unclear", Outcome.INCONCLUSIVE, None),
        finding("a/api", Outcome.FAIL, None, Concern.CONFORMANCE),
        finding("a/held_back", Outcome.FAIL, None),
        finding("a/drifts", Outcome.FAIL, Ladder.DRIFT),
        finding("a/dead", Outcome.ERROR, None),
        finding("a/lost", Outcome.FAIL, Ladder.STRUCTURAL),
    ]
    assert [card.rows[0].claim for card in report_of(records).cards] == [
        "a/lost",
        "a/drifts",
        "a/held_back",
        "a/api",
        "a/dead",
        "a/unclear",
        "a/skipped",
    ]


def test_one_reason_for_many_claims_is_one_card() -> None:
    (card,) = report_of(runs.dead_server()).cards
    assert len(card.rows) == 14
    assert card.evidence == ("5 trials could not be measured: for this reason",)
    assert card.misses == ()


def test_a_trial_is_listed_once_even_when_two_claims_stand_on_it() -> None:
    cards = report_of(runs.unfaithful_at_a_residue()).cards
    listed = [miss.trial for card in cards for miss in card.misses]
    assert len(listed) == len(set(listed)) == 12
    assert cards[1].more == "6 trials listed above; 54 further trials in run.jsonl"


def test_claims_that_were_never_reached_are_listed() -> None:
    claims = read(reports.render_html(runs.interrupted())).one("claims")
    assert [item.text for item in claims.every("li")] == list(pieces.PLAN[2:])


def test_measures_that_are_no_proportion_get_no_drawing() -> None:
    finding = msgspec.structs.replace(
        pieces.simple_pass("twins/cold_equals_cached", "cold equals cached"),
        effect_name="abs logprob difference, nats",
        effect=3.1e-5,
        interval=(0.0, 4.2),
        threshold=0.05,
    )
    ((row,),) = [suite.rows for suite in report_of([finding]).claims.suites]
    assert row.figures.gauge is None
    assert row.figures.effect == "abs logprob difference, nats 3.1e-05"
    assert row.figures.bounds == "0 to 4.2"


def test_a_difference_is_not_shown_as_a_count_of_right_answers() -> None:
    """`k` of a paired difference counts pairs that only the control arm had right."""
    finding = msgspec.structs.replace(
        pieces.simple_pass(pieces.ABORT, "no worse than without an abort"),
        effect_name="difference of rates",
        effect=-0.071,
        interval=(-0.19, 0.02),
        threshold=-0.1,
        k=1,
        n=14,
    )
    ((row,),) = [suite.rows for suite in report_of([finding]).claims.suites]
    assert (row.figures.counts, row.figures.effect) == ("", "difference of rates -0.071")
    assert (row.figures.bounds, row.figures.threshold) == ("-0.19 to 0.02", "-0.1")
    assert row.figures.gauge is None
    gained = msgspec.structs.replace(finding, effect=0.1, interval=(0.02, 0.3), threshold=None)
    ((row,),) = [suite.rows for suite in report_of([gained]).claims.suites]
    assert (row.figures.counts, row.figures.gauge) == ("", None)


def in_parts(**changes: object) -> Finding:
    """Return a finding of three parts: the pool holds, one length fails, one is open."""
    parts = tuple(
        Part(
            title=title,
            outcome=outcome,
            reason=f"{k} of {n} right",
            effect_name="recall",
            effect=k / n,
            interval=(k / n - 0.1, k / n),
            threshold=threshold,
            k=k,
            n=n,
        )
        for title, outcome, k, n, threshold in (
            ("recall >= 0.95 over all", Outcome.PASS, 63, 64, 0.95),
            ("recall >= 0.80 at 256", Outcome.FAIL, 2, 14, 0.8),
            ("recall >= 0.80 at 512", Outcome.INCONCLUSIVE, 13, 14, 0.8),
        )
    )
    fields: dict[str, object] = {
        "outcome": Outcome.FAIL,
        "reason": "recall >= 0.80 at 256: 2 of 14 right; of 2 other parts 1 is inconclusive",
        "parts": parts,
        "k": 2,
        "n": 14,
    }
    passed = pieces.simple_pass("needle_sweep/all", "facts are found at every length")
    return msgspec.structs.replace(passed, **(fields | changes))


def test_each_part_of_a_claim_stands_in_the_table_with_its_own_figures() -> None:
    rows = claims_table([pieces.manifest(), in_parts()]).rows
    at = next(i for i, row in enumerate(rows) if row[1:] and row[1].startswith("facts are found"))
    assert rows[at][0] == "fail"
    assert rows[at][1].endswith("Decided in the 3 parts below.")
    assert rows[at][2:4] == ["", ""]
    assert [[*row[:3], row[3].split(" threshold ")[-1]] for row in rows[at + 1 : at + 4]] == [
        ["pass", "recall >= 0.95 over all", "63/64", "0.95"],
        ["fail", "recall >= 0.80 at 256", "2/14", "0.8"],
        ["inconclusive", "recall >= 0.80 at 512", "13/14", "0.8"],
    ]


def test_a_card_tells_the_parts_that_came_out_as_the_claim_and_that_its_reason_does_not() -> None:
    (card,) = report_of([in_parts()]).cards
    assert card.reason.startswith("recall >= 0.80 at 256: 2 of 14 right")
    assert card.reasons == ()
    (card,) = report_of([in_parts(reason="Holm undid it", outcome=Outcome.INCONCLUSIVE)]).cards
    assert card.reasons == (("recall >= 0.80 at 512", "13 of 14 right"),)


def test_the_summary_lists_parts_below_their_claim() -> None:
    lines = reports.render_summary([pieces.manifest(), in_parts()]).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("| ✗ fail | facts are found"))
    assert [line.split(" | ")[:3] for line in lines[at + 1 : at + 4]] == [
        ["| ✓ pass", "– recall &gt;= 0.95 over all", "63/64"],
        ["| ✗ fail", "– recall &gt;= 0.80 at 256", "2/14"],
        ["| ? inconclusive", "– recall &gt;= 0.80 at 512", "13/14"],
    ]
