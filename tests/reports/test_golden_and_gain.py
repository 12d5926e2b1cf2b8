"""Context gain and golden: figures, places and what a run without a golden says."""

import reports
from fidelity.golden.judging import profile_of as golden_profile
from fidelity.records import Finding, GoldenState, Trial
from fidelity.words import Outcome
from reports.view import report_of
from tests.reports import pieces
from tests.reports.page import read

NO_SUM = [[0.0, 0.0, 0.0]]


def finding(suite, profile):
    return Finding(
        claim=f"{suite}/x",
        suite=suite,
        title="t",
        outcome=Outcome.PASS,
        reason="r",
        profile=profile,
    )


def page(*records, **changes):
    return read(reports.render_html([pieces.manifest(**changes), *records]))


def gain():
    cells = [
        {"length_tokens": 256, "depth_frac": 0.0, "n": 2, "mean": 3.0, "least": 2.0},
        {"length_tokens": 256, "depth_frac": 1.0, "n": 2, "mean": -0.001, "least": -0.5},
        {"length_tokens": 768, "depth_frac": 1.0, "n": 2, "mean": 1.5, "least": -0.5},
    ]
    lengths = [
        {"length_tokens": 256, "n": 4, "mean": 1.5, "median": 1.5, "least": -0.5, "gains": 3},
        {"length_tokens": 768, "n": 2, "mean": 1.5, "median": 1.5, "least": -0.5, "gains": 1},
    ]
    return {"cells": cells, "lengths": lengths, "distractor_nats": [0.1, -0.1]}


def text(name, tokens, *, ok):
    details = {
        "kl": 0.2,
        "kl_top": 0.1,
        "mean_abs": 0.3,
        "p99": 2.0,
        "maximum": 4.0,
        "maximum_at": 9,
        "top1_agreement": 0.9,
        "open": 100,
        "moved": 0 if ok else 50,
        "answer_loss": 1.0,
        "first_divergence": None if ok else 8,
        "first_divergence_gap": 0.7,
        "tie": False,
        "eighths": NO_SUM * 8,
        "positions": [[100.0, 30.0, 0.0 if ok else 50.0]],
        "residues": [[1.0, 0.3, 0.0]] * 128,
        "classes": [],
        "flips": 0,
    }
    return Trial(
        id=name,
        claim="golden/x",
        suite="golden",
        probe="golden text",
        ok=ok,
        cell={"length_tokens": 256, "prompt_tokens": tokens},
        details=details,
    )


def test_gains_are_shown_by_length_and_depth_in_nats():
    part = page(finding("context_gain", gain())).one("gain")
    table = next(part.every("table", "heat"))
    assert table.rows == [["0", "+3.0", ""], ["1", "+0.0", "+1.5"], ["all", "+1.5", "+1.5"]]
    tones = [cell.attributes["class"] for cell in table.every("td")]
    assert tones == ["r4", "blank", "r0", "r2", "r2", "r2"]
    assert "the fact gains in 4 of 6 contexts" in part.text
    assert "worth +0.00 nats on average (2 contexts); altering the fact itself +1.50" in part.text


def test_a_run_without_either_suite_has_neither_section():
    report = report_of([pieces.manifest(), pieces.needle(0, 512)])
    assert (report.gain, report.golden) == (None, None)


def test_a_run_without_a_golden_says_what_it_left_out():
    left_out = {"golden/a": "a golden deployment", "golden/b": "a golden deployment"}
    part = page(left_out=left_out).one("golden")
    assert "2 claims are no part of this run: they need a golden deployment." in part.text


def test_the_comparison_shows_figures_places_and_divergences():
    texts = [text("t1", 251, ok=False), text("t2", 252, ok=True), text("t3", 255, ok=False)]
    profile = golden_profile(texts, dtype="bfloat16")
    golden = GoldenState(name="stock", base_url="http://b/v1", model="m", dialect="vllm")
    part = page(finding("golden", profile), *texts, golden=golden).one("golden")
    rows = next(part.every("table", "figures")).rows
    assert rows == [
        ["256", "1/3", "0.1", "0.2", "0.3", "2", "4 at 10", "90.00%", "33.3%", "1"],
    ]
    assert "compared with stock at http://b/v1, model m, dialect vllm" in part.text
    titles = [node.text for node in part.every("title")]
    assert "length modulo 4 = 3: 2 of 2 texts do not agree" in titles
    assert "length modulo 4 = 0: 0 of 1 texts do not agree" in titles
    divergences = list(part.every("table"))[-1].rows
    assert divergences == [["t1", "251", "9", "0.7", "no tie"], ["t3", "255", "9", "0.7", "no tie"]]


def test_its_trials_are_no_needles():
    report = report_of([pieces.manifest(), text("t1", 251, ok=False)])
    assert report.needles.trials == 0
