"""Microtests in the report: ladder, selection over the length, cards, and what is not shown."""

import msgspec

import reports
from fidelity.microtests.findings import finding_of, state_of, verdict_of
from fidelity.microtests.results import HARVESTED, Check, Curve, PatchReport, Point, Scope
from fidelity.words import Ladder, PatchVerdict, Question
from reports.view import report_of
from reports.view_journal import sort_journal
from reports.view_microtests import microtests_of
from tests.reports import pieces
from tests.reports.page import read

SCOPE = Scope(code="c" * 64, dtype="keys int4", shapes=("k[4]",), data="synthetic", device="cpu")
CHECKS = (
    Check(question=Question.IMPLEMENTATION, name="largest error", value=0.5, limit=2, holds=True),
    Check(question=Question.FORMAT, name="needles lost", value=3, limit=0, holds=False,
          where="4k <b>tokens</b>", sentence="lost"),
)  # fmt: skip
POINTS = (
    Point(tokens=1_000, needles=4, needles_kept=4, jaccard=0.9),
    Point(tokens=22_000, needles=4, needles_kept=1, jaccard=0.25),
)


def report(name="index_keys", verdict=PatchVerdict.EXONERATED, **more):
    given = {"ladder": Ladder.ROUNDING, "reason": "all <i>hold</i>", "checks": CHECKS} | more
    return PatchReport(name=name, verdict=verdict, scope=SCOPE, **given)


SYNTHETIC = report(value="int4", curves=(Curve(label="keys int4", points=POINTS[:1] * 2),))
CONVICTED = report(
    verdict=PatchVerdict.CONVICTED,
    value="int4",
    source=HARVESTED,
    ladder=Ladder.SELECTION,
    curves=(Curve(label="keys int4", points=POINTS),),
)
INERT = report("mhc_bf16", PatchVerdict.INERT, ladder=None, checks=())


def journal(*reports, verdict=True):
    manifest = msgspec.structs.replace(
        pieces.manifest(),
        command=("fidelity", "micro", "--patch=index_keys=int4"),
        planned_claims=(),
    )
    last = verdict_of(reports, trouble="", interrupted=False, duration_s=2.0)
    return [
        manifest,
        *(finding_of(one, earlier="exonerated on Monday; in force") for one in reports),
        state_of(reports),
        *([last] if verdict else []),
    ]


def page(*reports_, **more):
    return read(reports.render_html(journal(*reports_, **more)))


def test_both_sources_stand_side_by_side():
    text = page(CONVICTED, SYNTHETIC).text
    assert "Convicted: index_keys=int4 on harvested inputs." in text
    assert "harvested: 5 of 8 needles kept" in text
    assert "synthetic: 8 of 8 needles kept" in text
    assert "Before: exonerated on Monday; in force." in text


def test_nothing_of_a_served_model_is_shown():
    made = page(SYNTHETIC)
    for absent in ("Effective context", "Coverage", "Conversations", "Capabilities", "Tokens"):
        assert absent not in made.text
    assert "Every patch examined is exonerated, in its scope." in made.text
    assert "fidelity micro --inputs DIR --checkpoint DIR" in made.text


def test_the_ladder_places_each_patch_on_its_rung():
    micro = microtests_of(sort_journal(journal(CONVICTED, SYNTHETIC, INERT)))
    assert micro is not None
    columns = {name: x for x, name in micro.ladder.columns}
    assert list(columns) == [rung.value for rung in Ladder]
    places = [(row.x, row.held) for row in micro.ladder.rows]
    assert places == [(columns["selection"], False), (columns["rounding"], True), (None, False)]


def test_a_chart_falls_where_needles_are_lost():
    micro = microtests_of(sort_journal(journal(CONVICTED)))
    assert micro is not None
    (chart,) = micro.charts
    near, far = chart.spots
    assert near.x < far.x
    assert near.kept_y < far.kept_y  # higher on the page is more
    assert near.jaccard_y < far.jaccard_y
    assert (near.held, far.held) == (True, False)
    assert far.title == "22,000 tokens: 1 of 4 needles kept, Jaccard 0.250 over 1 row"


def test_texts_of_a_journal_are_escaped():
    made = reports.render_html(journal(CONVICTED))
    assert "<b>tokens" not in made
    assert "<i>hold" not in made


def test_other_headlines():
    assert "Undecided: mhc_bf16." in page(INERT).text
    assert "No verdict: the run was cut off." in page(SYNTHETIC, verdict=False).text


def test_a_served_run_has_no_such_part():
    assert report_of([pieces.manifest()]).micro is None


def test_a_profile_that_is_none_of_ours_is_left_out():
    broken = msgspec.structs.replace(finding_of(SYNTHETIC), profile={"microtest": {"name": 1}})
    assert microtests_of(sort_journal([*journal(SYNTHETIC)[:1], broken])) is None
    assert reports.render_html([*journal(SYNTHETIC)[:1], broken])


def test_the_summary_names_the_convicted():
    text = reports.render_summary(journal(CONVICTED, SYNTHETIC))
    assert "Convicted: index\\_keys=int4 on harvested inputs." in text
