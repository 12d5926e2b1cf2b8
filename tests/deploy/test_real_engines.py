"""The scripts around real engines: what they install, and what they make of a run."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "deploy" / "real_engines"


@pytest.fixture(autouse=True)
def _scripts_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)


def finding(claim, outcome, reason="because"):
    return {"kind": "finding", "claim": claim, "outcome": outcome, "reason": reason}


NEEDLES = [{"kind": "trial", "probe": "needle", "ok": True}] * 20
VERDICT = {"kind": "verdict"}


def problems(records, known=(), **options):
    from quick_check import problems_of

    return problems_of(records, known, **{"has_report": True, **options})


def test_a_run_with_failed_claims_did_its_work():
    records = [finding("a/x", "fail"), finding("a/y", "pass"), *NEEDLES, VERDICT]
    assert problems(records, ["a/x"]) == []


@pytest.mark.parametrize(
    ("records", "known", "options", "said"),
    [
        ([*NEEDLES], [], {}, "no verdict"),
        ([*NEEDLES, VERDICT], [], {"has_report": False}, "no report.html"),
        ([finding("a/x", "error"), *NEEDLES, VERDICT], [], {}, "a/x ended in error: because"),
        ([*NEEDLES[:3], VERDICT], [], {}, "3 needles were measured"),
        ([finding("a/x", "pass"), *NEEDLES, VERDICT], ["a/x"], {}, "was not found: a/x"),
    ],
)
def test_a_run_that_lacks_something_is_named(records, known, options, said):
    (only,) = problems(records, known, **options)
    assert said in only


def test_the_last_finding_of_a_claim_counts():
    records = [finding("a/x", "error"), finding("a/x", "fail"), *NEEDLES, VERDICT]
    assert problems(records, ["a/x"]) == []


def test_known_findings_name_plumbing_claims():
    known = json.loads((SCRIPTS / "known_findings.json").read_text())
    assert all(name.startswith("plumbing/") for names in known.values() for name in names)


def wheel_with(tmp_path, *requires):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        lines = ["Name: x", *(f"Requires-Dist: {line}" for line in requires)]
        archive.writestr("x-1.dist-info/METADATA", "\n".join(lines))
    return wheel


def test_requirements_of_a_wheel_hold_here_and_are_wanted(tmp_path):
    from wheel_requirements import requirements_of

    wheel = wheel_with(
        tmp_path,
        "numpy<3,>=1",
        "Torch==2.0",
        'tests; extra == "dev"',
        'other; python_version < "3"',
        "fastapi[standard]>=1",
    )
    found = requirements_of(wheel, left_out=frozenset({"torch"}))
    assert found == ["numpy<3,>=1", "fastapi[standard]>=1"]


def test_a_step_is_done_once_for_one_recipe(tmp_path):
    from install import once

    done = []
    for recipe in ("a", "a", "b"):
        once(tmp_path / "stamp", recipe, "a step", lambda: done.append(1))
    assert len(done) == 2


def test_a_failed_step_says_why(tmp_path):
    from install import InstallError, run

    with pytest.raises(InstallError, match=r"a step failed with exit code 3:\nno such thing"):
        run([sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"], "a step")


def test_an_unknown_engine_is_refused(tmp_path):
    command = [sys.executable, SCRIPTS / "install.py", "nosuch", "--root", tmp_path / "r"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no engine 'nosuch'; there are llamacpp, transformers, vllm" in done.stderr
    assert not (tmp_path / "r").exists()


def exchange(label, status=200, **sent):
    messages = [
        {"role": "request", "content": json.dumps({"model": "m", **sent})},
        {"role": "user", "content": "hello"},
        {"role": "raw answer", "content": "{}"},
    ]
    return {
        "label": label,
        "status": status,
        "messages": messages,
        "path": "/chat/completions",
        "text": "",
    }


def test_a_failed_claim_comes_with_the_request_that_shows_it(tmp_path):
    from findings import main

    trial = {
        "kind": "trial",
        "id": "t1",
        "ok": False,
        "exchanges": [
            exchange("as it is"),
            exchange("n 2", n=2),
            exchange("a good request after it"),
        ],
    }
    failed = {
        **finding("plumbing/x[n]", "fail", "n 2: one choice came; the request is in trial t1"),
        "title": "n gives so many choices",
        "trials": ["t1"],
        "n": 1,
        "k": 0,
    }
    run = tmp_path / "run"
    run.mkdir()
    lines = [trial, failed, {**finding("plumbing/y", "pass"), "trials": []}]
    (run / "run.jsonl").write_text("\n".join(map(json.dumps, lines)))
    main("tiny", tmp_path / "out", [run])
    (only,) = json.loads((tmp_path / "out" / "tiny.json").read_text())
    assert json.loads(only["request"])["n"] == 2
    assert only["reason"] == "n 2: one choice came"
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "curl -s $URL/chat/completions" in page
    assert '"messages": [{"role": "user", "content": "hello"}]' in page
