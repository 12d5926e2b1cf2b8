"""A claim decided in several parts: each keeps its figures, the worst speaks, and they add up."""

from xml.etree import ElementTree as ET

import msgspec
import pytest

from fidelity.records import Trial, encode
from fidelity.runs.difference import difference_lines
from fidelity.runs.junit import write_junit
from fidelity.verdicts.decisions import Claim, noninferior_finding, rate_finding
from fidelity.verdicts.opened import OpenedClass
from fidelity.verdicts.parts import merge
from fidelity.verdicts.verdict import resolve
from fidelity.words import Blame, Ladder, Outcome

CLAIM = Claim(id="needle/recall[deep]", suite="needle", title="Facts are found")


def trials(right, wrong=0, *, start=0, **fields):
    return [
        Trial(
            id=f"{fields.get('arm', '')}{i}",
            claim=CLAIM.id,
            suite="needle",
            probe="needle",
            key=str(i),
            ok=i < start + right,
            **fields,
        )
        for i in range(start, start + right + wrong)
    ]


def rate(right, wrong, title, **options):
    return rate_finding(CLAIM, trials(right, wrong), 0.80, title=title, **options)


def opened(name, right, wrong, beside, *, asked=True):
    fresh = trials(right, wrong, start=1000, stage=2) if asked else []
    return OpenedClass(
        name=name, threshold=0.80, trials=tuple(fresh), stage_one=tuple(trials(beside))
    )


def test_each_length_keeps_its_own_figures():
    found = merge(CLAIM, [rate(60, 1, "over all"), rate(14, 0, "at 256"), rate(2, 12, "at 512")])
    assert [(p.title, p.outcome, p.k, p.n) for p in found.parts] == [
        ("over all", Outcome.PASS, 60, 61),
        ("at 256", Outcome.PASS, 14, 14),
        ("at 512", Outcome.FAIL, 2, 14),
    ]
    assert (found.outcome, found.k, found.n) == (Outcome.FAIL, 2, 14)
    assert found.parts[1].interval == pytest.approx((0.8074, 1.0), abs=1e-4)
    assert found.parts[2].p_value * 3 == pytest.approx(found.p_value)
    assert found.reason.startswith("at 512: 2 of 14 right (0.143;")
    assert found.reason.endswith("; all 2 others hold")


def test_a_merged_claim_is_titled_by_its_own_sentence_and_parameter():
    parts = [rate(60, 1, "over all"), rate(14, 0, "at 256")]
    assert merge(CLAIM, parts).title == "Facts are found [deep]"
    assert merge(CLAIM, parts, title="given").title == "given"
    assert merge(Claim(id="a/b", suite="a", title=""), parts).title == "over all; at 256"


def test_one_decision_has_no_parts():
    assert rate(14, 0, "at 256").parts == ()
    assert merge(CLAIM, [rate(14, 0, "at 256")]).parts == ()


def test_a_class_is_one_part_however_many_decisions_looked_at_it():
    bad = opened("residue_4=3", 0, 22, 60)
    found = merge(
        CLAIM, [rate(60, 1, "over all", opened=[bad]), rate(14, 0, "at 256", opened=[bad])]
    )
    assert [(p.title, p.outcome) for p in found.parts] == [
        ("over all", Outcome.PASS),
        ("rate >= 0.80 at prompt length ≡ 3 (mod 4)", Outcome.FAIL),
        ("at 256", Outcome.PASS),
    ]
    assert (found.blame, found.ladder) == (Blame.DEPLOYMENT, Ladder.STRUCTURAL)


def test_the_part_that_names_the_culprit_speaks_before_one_with_a_smaller_p_value():
    bad = opened("residue_4=3", 0, 22, 60)
    found = rate_finding(
        CLAIM, trials(60, 60), 0.95, title="over all", effect_name="recall", opened=[bad]
    )
    assert found.parts[0].p_value < found.parts[1].p_value
    assert found.reason.startswith("recall >= 0.80 at prompt length ≡ 3 (mod 4): 0 of 22 fresh")
    assert found.reason.endswith("; the other part fails")


def test_classes_that_were_not_asked_are_one_part_and_keep_the_claim_open():
    classes = [opened(f"residue_16={i}", 0, 0, 60, asked=False) for i in range(9)]
    found = rate(60, 1, "over all", opened=classes)
    assert [p.title for p in found.parts] == [
        "over all",
        "9 other classes with a miss, not asked again",
    ]
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_claim_fails_exactly_when_one_of_its_parts_does():
    barely = rate(12, 8, "barely")  # p .032: 2 x .032 is no longer below .05
    found = merge(CLAIM, [barely, rate(22, 0, "clean")])
    assert [p.outcome for p in found.parts] == [Outcome.INCONCLUSIVE, Outcome.PASS]
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "not as one of 2 parts (p 0.0643)" in found.reason
    lost = resolve({CLAIM.id: merge(CLAIM, [rate(9, 8, "a"), rate(22, 0, "b")])}, [], ["x"] * 40)
    assert lost.findings[0].outcome is Outcome.INCONCLUSIVE
    assert Outcome.FAIL not in {p.outcome for p in lost.findings[0].parts}


def test_a_fail_that_does_not_bear_its_neighbours_takes_its_parts_with_it():
    weak = opened("residue_4=3", 11, 11, 60)  # p .002 alone
    one = rate(60, 1, "over all", opened=[weak])
    assert Outcome.FAIL in {part.outcome for part in one.parts}
    found = merge(CLAIM, [one, *(rate(22, 0, f"at {n}") for n in range(20))])
    assert found.outcome is Outcome.INCONCLUSIVE
    assert Outcome.FAIL not in {part.outcome for part in found.parts}


def test_a_pool_beside_opened_classes_pays_for_two_looks():
    cleared = opened("residue_4=3", 22, 0, 60)
    alone, beside = rate(12, 8, "pool"), rate(12, 8, "pool", opened=[cleared])
    assert alone.outcome is Outcome.FAIL
    assert beside.outcome is Outcome.INCONCLUSIVE
    assert beside.p_value == pytest.approx(2 * alone.p_value)


def test_blame_is_that_of_the_part_that_tells_most():
    control = trials(60, arm="control")
    paired = noninferior_finding(CLAIM, trials(30, 30), control, 0.10, title="no worse")
    found = merge(CLAIM, [rate(10, 50, "recall"), paired])
    assert rate(10, 50, "recall").p_value < paired.p_value
    assert found.blame is Blame.DEPLOYMENT


def test_junit_has_the_figures_of_each_part(tmp_path):
    found = merge(CLAIM, [rate(60, 1, "over all"), rate(2, 12, "at 512")])
    write_junit(tmp_path / "junit.xml", [found])
    root = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 - ours
    told = {p.get("name"): p.get("value") for p in root.iter("property")}
    assert (told["part.1.title"], told["part.1.k"], told["part.1.n"]) == ("over all", "60", "61")
    assert (told["part.2.title"], told["part.2.outcome"]) == ("at 512", "fail")
    assert float(told["part.2.upper"]) == pytest.approx(0.3854, abs=1e-3)
    assert told["part.2.blame"] == "unknown"


def test_diff_names_the_part_that_changed(tmp_path):
    runs = {"before": (14, 0), "after": (2, 12)}
    for name, (right, wrong) in runs.items():
        (tmp_path / name).mkdir()
        found = merge(CLAIM, [rate(60, 1, "over all"), rate(right, wrong, "at 512")])
        found = msgspec.structs.replace(found, effect=0.5)
        (tmp_path / name / "run.jsonl").write_bytes(encode(found) + b"\n")
    lines, worse = difference_lines(tmp_path / "before", tmp_path / "after")
    assert worse
    assert (
        "  at 512: pass (rate 1.000 [0.807, 1.000], n 14) -> fail (rate 0.143 [0.026, 0.385], n 14)"
    ) in lines
    assert not any(line.startswith("  over all") for line in lines)
