"""The section of the shortest failing script: escaped, bounded, with the command to repeat it."""

import msgspec

import reports
from fidelity.records import Exchange, Finding, Trial
from fidelity.words import Outcome
from tests.reports import runs
from tests.reports.page import read

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 5_000


def failing(**profile):
    def exchange(label, text, **fields):
        return Exchange(
            request_id="r",
            label=label,
            text=text,
            messages=({"role": "user", "content": HOSTILE},),
            prompt_tokens=200,
            cached_tokens=128,
            **fields,
        )

    trial = Trial(
        id="t0123456789ab",
        claim="stateful/x",
        suite="stateful",
        probe="script",
        ok=False,
        cell={"isolation": "flushed cache"},
        error="2. chat c1: '1', alone '2'",
        exchanges=(
            exchange("1. abort c1 after 1 deltas, by closing", "", aborted=True),
            exchange("2. chat c1", HOSTILE),
            exchange("2. chat c1: alone", "right"),
            exchange("2. chat c1: alone, again", "right"),
        ),
    )
    finding = Finding(
        claim="stateful/x",
        suite="stateful",
        title="every answer is what it is alone",
        outcome=Outcome.FAIL,
        reason="because",
        trials=(trial.id,),
        profile={
            "script": {
                "trial": trial.id,
                "steps": ["abort c1", "follow up c1"],
                "again": "with other words it fails again in 2 of 2",
                "command": "fidelity replay 'a b.json' --base-url=http://x/v1",
                "files": ["stateful_1.json", "test_stateful_1.py"],
                **profile,
            }
        },
    )
    records = runs.faithful()
    return [*records[:-1], trial, finding, records[-1]]


def test_the_script_is_shown_with_its_answers_and_the_command():
    section = read(reports.render_html(failing())).one("script-1")
    assert "abort c1 → follow up c1" in section.text
    assert "fails again in 2 of 2" in section.text
    assert "fidelity replay 'a b.json' --base-url=http://x/v1" in section.text
    assert "stateful_1.json, test_stateful_1.py" in section.text
    rows = next(section.every("table")).rows
    assert [row[0] for row in rows] == ["1. abort c1 after 1 deltas, by closing", "2. chat c1"]
    assert rows[0][3:] == ["(left)", ""]
    assert rows[1][4] == "right"
    assert rows[1][1] == "200 (128 cached)"


def test_hostile_texts_are_escaped_and_bounded():
    page = reports.render_html(failing(steps=[HOSTILE] * 90, command=HOSTILE))
    section = page[page.index('id="script-1"') :].partition("</section>")[0]
    assert "<script>alert" not in section
    assert len(section) < 20_000


def test_a_profile_that_is_no_script_is_left_out():
    records = failing()
    finding = msgspec.structs.replace(records[-2], profile={"script": "?"})
    page = reports.render_html([*records[:-2], finding, records[-1]])
    assert 'id="script-1"' not in page
    finding = msgspec.structs.replace(records[-2], profile={"script": {"steps": 7, "trial": "?"}})
    assert 'id="script-1"' in reports.render_html([*records[:-2], finding, records[-1]])
