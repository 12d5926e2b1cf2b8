"""Needle maps, effective context and coverage: the counts are right, the blanks are visible."""

import msgspec
import pytest

import reports
from fidelity.records import AnyRecord, Trial
from fidelity.statistics.stats import wilson
from reports.view import report_of
from reports.view_bins import compact, depth_bins, length_bins
from reports.view_coverage import token_bins
from tests.reports import pieces, runs
from tests.reports.page import Node, read


def heat_table(records: list[AnyRecord]) -> Node:
    return next(read(reports.render_html(records)).one("needles").every("table", "heat"))


def test_cells_count_right_and_asked_in_text_and_on_hover() -> None:
    trials = [pieces.needle(n, 512, ok=n != 5) for n in range(10)]
    trials += [pieces.needle(n, 8192) for n in range(5)]
    table = heat_table([pieces.manifest(), *trials])
    assert table.rows == [
        ["0", "1/2", "1/1"],
        ["0.25", "2/2", "1/1"],
        ["0.5", "2/2", "1/1"],
        ["0.75", "2/2", "1/1"],
        ["1", "2/2", "1/1"],
        ["all", "9/10", "5/5"],
    ]
    cell = next(table.every("td", "r1"))
    assert cell.attributes["title"] == "512 tokens, depth 0: 1 of 2 found"


def test_a_cell_that_was_never_asked_is_hatched_and_says_so() -> None:
    trials = [pieces.needle(0, 512), pieces.needle(6, 8192)]
    table = heat_table([pieces.manifest(), *trials])
    blank = list(table.every("td", "blank"))
    assert [cell.attributes["title"] for cell in blank] == [
        "8,192 tokens, depth 0: never asked",
        "512 tokens, depth 0.25: never asked",
    ]


def test_infrastructure_trouble_counts_neither_way() -> None:
    dead = msgspec.structs.replace(pieces.needle(5, 512), ok=None, score=None, error="timeout")
    table = heat_table([pieces.manifest(), pieces.needle(0, 512), dead])
    assert table.rows == [["0", "1/1 !1"], ["all", "1/1 !1"]]


def test_controls_and_arms_stay_out_of_the_map() -> None:
    damaged = [pieces.needle(n, 512, ok=False, id=f"control-{n}", key="") for n in range(8)]
    other_arm = pieces.needle(3, 512, ok=False, id="warm", arm="cached")
    table = heat_table(
        [pieces.manifest(), pieces.needle(0, 512), *damaged, other_arm, *pieces.controls()]
    )
    assert table.rows[-1] == ["all", "1/1"]


def test_a_cell_with_a_miss_leads_to_its_conversation() -> None:
    page = read(reports.render_html(runs.unfaithful_at_a_residue()))
    table = next(page.one("needles").every("table", "heat"))
    link = next(table.every("a"))
    target = page.one(link.attributes["href"].removeprefix("#"))
    assert "pair" in target.attributes["class"]


def test_the_residue_map_shows_the_one_bad_residue() -> None:
    needles = report_of(runs.unfaithful_at_a_residue()).needles
    assert needles.pattern.startswith("All 88 misses lie at prompt length ≡ 3 (mod 4)")
    by_four = needles.residues[0]
    assert [cell.text for cell in by_four.cells] == ["66/66", "66/66", "66/66", "0/88"]
    assert [cell.tone for cell in by_four.cells] == ["r4", "r4", "r4", "r0"]
    assert [(residue.modulus, residue.open) for residue in needles.residues] == [
        (4, True),
        (16, True),
        (64, False),
        (128, False),
    ]


def test_one_bad_residue_of_128_opens_the_fine_map() -> None:
    """Pooled, such a fault hides at .992."""
    trials = [pieces.needle(n, 1024 + n, ok=n != 77) for n in range(128)]
    trials += [pieces.needle(n, 2048 + n, ok=n != 77) for n in range(128)]
    needles = report_of([pieces.manifest(), *trials]).needles
    assert needles.pattern == (
        "All 2 misses lie at prompt length ≡ 77 (mod 128): 2 of 2 trials there, 0 of 254 elsewhere."
    )
    assert needles.residues[3].open
    assert needles.residues[3].cells[77].text == "0/2"
    assert needles.residues[3].covered == "every residue"
    page = read(reports.render_html([pieces.manifest(), *trials]))
    titles = [cell.attributes.get("title", "") for cell in page.one("needles").every("div", "r0")]
    assert "prompt length ≡ 77 (mod 128): 0 of 2 found" in titles


def test_recall_that_ends_at_a_length_is_told_as_such() -> None:
    trials = [
        pieces.needle(n, length, ok=length < 4096) for length in pieces.LENGTHS for n in range(7)
    ]
    report = report_of([pieces.manifest(), *trials])
    assert report.needles.pattern == (
        "All 14 misses lie at 4,096 tokens or more: 14 of 14 trials there, 0 of 28 elsewhere."
    )


def test_misses_without_a_pattern_get_no_sentence() -> None:
    trials = [pieces.needle(n, 512, ok=n not in {3, 9, 20}) for n in range(44)]
    assert report_of([pieces.manifest(), *trials]).needles.pattern == ""


def test_a_class_that_is_mostly_right_is_no_pattern() -> None:
    trials = [pieces.needle(n, 512, ok=n not in {2, 7}) for n in range(44)]  # both at depth 0.5
    assert report_of([pieces.manifest(), *trials]).needles.pattern == ""


def reach_run(wrong: dict[int, int], per_length: int = 44) -> list[AnyRecord]:
    return [
        pieces.needle(n, length, ok=n >= wrong.get(length, 0))
        for length in pieces.LENGTHS
        for n in range(per_length)
    ]


def test_effective_context_ends_where_recall_first_falls_below_nine_tenths() -> None:
    reach = report_of(reach_run({2048: 4, 4096: 20, 8192: 1})).reach
    assert reach.estimate == "2,048 tokens"
    assert reach.sentence == (
        "Recall holds at 0.9 or more up to 2,048 tokens; it is 0.55 (24/44) at 4,096 tokens."
    )
    assert reach.interval == (
        "Shown to hold up to 512 tokens and to be lost from 4,096 tokens on: 95 % bounds, recall "
        "taken not to rise with length."
    )
    assert [point.held for point in reach.points] == [True, True, True, True, False, False]
    assert reach.points[3].bounds == "0.79 to 0.96"


def test_effective_context_of_a_clean_run_is_a_lower_bound() -> None:
    reach = report_of(reach_run({})).reach
    assert reach.estimate == "at least 8,192 tokens"
    assert "nothing is known beyond 8,192 tokens" in reach.sentence
    assert "to be lost at no length" in reach.interval


def test_few_trials_prove_nothing_about_effective_context() -> None:
    reach = report_of(reach_run({}, per_length=3)).reach
    assert reach.interval.startswith("Shown to hold at no length and to be lost at no length")


def test_one_unlucky_length_is_named_and_does_not_end_the_context() -> None:
    reach = report_of(reach_run({512: 6})).reach
    assert reach.estimate == "at least 8,192 tokens"
    assert reach.sentence.endswith("Short of it within that: 0.86 (38/44) at 512 tokens.")


def test_clean_lengths_beyond_a_shown_loss_count_for_nothing() -> None:
    reach = report_of(reach_run({512: 20})).reach
    assert reach.estimate == "256 tokens"
    assert reach.interval.startswith("Shown to hold at no length and to be lost from 512 tokens on")
    assert [point.held for point in reach.points] == [True, *[False] * 5]


def test_recall_lost_everywhere_has_no_effective_context() -> None:
    assert report_of(reach_run(dict.fromkeys(pieces.LENGTHS, 30))).reach.estimate == (
        "less than 256 tokens"
    )


def test_second_stage_trials_do_not_bend_the_curve() -> None:
    """They were asked because something had failed there."""
    fresh = [
        pieces.needle(n, 512, ok=False, id=f"fresh-{n}", key=f"fresh-{n}", stage=2)
        for n in range(40)
    ]
    reach = report_of([*reach_run({}), *fresh]).reach
    assert reach.estimate == "at least 8,192 tokens"


def test_the_few_trials_around_a_boundary_are_no_sample_of_a_length() -> None:
    edge = {"length_tokens": 128, "depth_frac": 0.5, "needle_kind": "name", "boundary": "128+1"}
    around = [pieces.needle(n, 128, ok=n > 0, cell=edge) for n in range(3)]
    report = report_of([*around, *reach_run({})])
    assert report.reach.estimate == "at least 8,192 tokens"
    assert report.needles.by_depth.rows[-1][1][0].text == "2/3"


def test_a_cluster_is_one_observation_in_the_bounds() -> None:
    trials = [pieces.needle(n, 512, cluster=f"haystack {n // 10}") for n in range(40)]
    (point,) = report_of(trials).reach.points
    assert (point.right, point.bounds) == (
        "40/40",
        f"{wilson(4, 4)[0]:.2f} to 1",
    )


def covered(*counts: tuple[int, int | None, int], **changes: object) -> list[AnyRecord]:
    """Return a run of one trial for each (prompt, cached, generated)."""
    return [
        pieces.manifest(**changes),
        *[
            pieces.needle(
                n,
                prompt,
                exchanges=(
                    pieces.exchange(
                        "q",
                        "a",
                        prompt_tokens=prompt,
                        cached_tokens=cached,
                        completion_tokens=generated,
                    ),
                ),
            )
            for n, (prompt, cached, generated) in enumerate(counts)
        ],
    ]


def test_coverage_counts_prefilled_cached_and_generated_tokens() -> None:
    coverage = report_of(covered((500, 448, 8), (500, 448, 9), (8192, 0, 10))).coverage
    assert coverage.columns[:4] == ("128", "256", "512", "1k")
    (panel,) = coverage.panels
    rows = dict(panel.rows)
    assert [cell.text for cell in rows["512"]][:2] == ["2", ""]
    assert rows["512"][0].title == (
        "1 to 128 prefilled, 257 to 512 cached, 1 to 16 generated tokens: 2 requests"
    )
    assert rows["0"][coverage.columns.index("8k")].text == "1"
    assert rows["0"][coverage.columns.index("16k")].tone == "blank"
    assert coverage.blank_panels[:2] == ("0", "17 to 64")


def test_a_bin_holds_its_upper_edge() -> None:
    """8,192 prefilled tokens must not make 8k to 16k look exercised."""
    assert [(bin_.low, bin_.high) for bin_ in token_bins(1000, 128, 2)] == [
        (0, 0),
        (1, 128),
        (129, 256),
        (257, 512),
        (513, 1024),
    ]


def test_what_is_longer_than_a_sequence_may_be_is_not_called_a_gap() -> None:
    coverage = report_of(covered((100, 0, 4), server_info={"max_model_len": 1024})).coverage
    rows = dict(coverage.panels[0].rows)
    assert rows["1k"][0].tone == "blank"
    assert rows["1k"][-1].tone == "beyond"


def test_the_map_ends_at_the_limit_that_discovery_found() -> None:
    """Servers name it in several places; what discovery found counts before what one says."""
    counts, said = (100, 0, 4), {"max_total_tokens": 98_304}
    coverage = report_of(covered(counts, server_info=said, max_model_len=8192)).coverage
    assert coverage.columns[-1] == "8k"
    assert report_of(covered(counts, server_info=said)).coverage.columns[-1] == "128k"


def test_the_public_case_shows_its_blind_spot_in_words() -> None:
    """About 90 prefilled and 8,000 generated tokens passed; prefills of 10-30k failed."""
    coverage = report_of(covered((90, 0, 8000), (12_000, 0, 5))).coverage
    assert coverage.never == (
        (
            "Never exercised at all: prefilling more than 12,000 tokens, reading any token from "
            "the cache and generating more than 8,000 tokens."
        ),
        (
            "Never exercised together: prefilling more than 128 tokens, then generating more than "
            "16 tokens."
        ),
    )


def test_of_several_empty_corners_the_largest_is_named() -> None:
    coverage = report_of(covered((100, 0, 4000), (1000, 0, 1000), (8000, 0, 8))).coverage
    assert coverage.never[1] == (
        "Never exercised together: prefilling more than 1,024 tokens, then generating more than "
        "16 tokens."
    )


def test_a_server_that_reports_no_usage_leaves_the_map_blank_and_says_why() -> None:
    bare = pieces.needle(0, 512, exchanges=(pieces.exchange("q", "a", prompt_tokens=None),))
    coverage = report_of([pieces.manifest(), bare]).coverage
    assert coverage.panels == ()
    assert coverage.missing == (
        "None of 1 exchange came back with token counts: the server reports no usage, or every "
        "request failed. The whole map is blank."
    )


def test_a_server_that_hides_its_cache_is_not_called_cold() -> None:
    coverage = report_of(covered((500, None, 8))).coverage
    assert coverage.notes == ("1 request without a cached-token count: shown as not cached.",)
    assert {path.name: path.requests for path in coverage.paths}["cold"] == "0 requests"


def test_paths_that_no_trial_took_are_called_never_exercised() -> None:
    coverage = report_of(runs.unfaithful_after_abort()).coverage
    rows = {path.name: (path.requests, path.proof, path.blank) for path in coverage.paths}
    assert rows["aborted"] == ("14 requests", "token counts and 14 trials of 1 claim", False)
    assert rows["chunked"] == ("never exercised", "none", True)
    html = read(reports.render_html(runs.unfaithful_after_abort()))
    assert len(list(html.one("coverage").every("span", "gapmark"))) == 2


def test_a_sweep_by_residue_is_one_column_per_size() -> None:
    lengths = [size + residue for size in (256, 1024, 8192) for residue in range(128)]
    assert [(bin_.low, bin_.high) for bin_ in length_bins(lengths)] == [
        (256, 383),
        (1024, 1151),
        (8192, 8319),
    ]


def test_an_even_sweep_falls_into_octaves() -> None:
    bins = length_bins(range(100, 3200, 10))
    assert [bin_.low for bin_ in bins] == [100, 200, 400, 800, 1600]
    assert all(any(bin_.holds(length) for bin_ in bins) for length in range(100, 3200, 10))


def test_many_depths_fall_into_tenths() -> None:
    bins = depth_bins(n / 50 for n in range(51))
    assert len(bins) == 10
    assert bins[-1].high == 1.0


@pytest.mark.parametrize(
    ("count", "label"),
    [(96, "96"), (1024, "1k"), (1500, "1.5k"), (8192, "8k"), (131072, "128k"), (2_000_000, "2M")],
)
def test_token_counts_are_named_as_people_name_them(count: int, label: str) -> None:
    assert compact(count) == label


def test_a_later_attempt_replaces_the_one_that_infrastructure_cut_off() -> None:
    first = msgspec.structs.replace(pieces.needle(0, 512), ok=None, score=None, error="timeout")
    again = msgspec.structs.replace(pieces.needle(0, 512), id="again", index=1)
    assert isinstance(first, Trial)
    assert heat_table([pieces.manifest(), first, again]).rows[-1] == ["all", "1/1"]
