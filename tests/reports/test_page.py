"""The page as a whole: one file, no network, no script, the same bytes, whatever the run."""

import json
import random
import re
from pathlib import Path

import pytest

import reports
from fidelity.errors import JournalError
from fidelity.records import encode
from reports.render import _environment
from tests.reports import pieces, runs
from tests.reports.page import read

SECTIONS = (
    "verdict",
    "measured",
    "findings",
    "claims",
    "needles",
    "reach",
    "coverage",
    "conversations",
    "controls",
    "patches",
    "capabilities",
    "settings",
    "holm",
    "repeat",
)
TEMPLATES = Path(reports.__file__).parent / "templates"


@pytest.mark.parametrize("name", runs.ALL)
def test_every_run_renders_with_all_sections_in_order(name: str) -> None:
    page = read(reports.render_html(runs.ALL[name]()))
    ids = [node.attributes["id"] for node in page.every() if "id" in node.attributes]
    assert tuple(id_ for id_ in ids if id_ in SECTIONS) == SECTIONS
    assert all(page.one(section).text for section in SECTIONS)


@pytest.mark.parametrize("name", runs.ALL)
def test_ids_are_unique_and_every_link_leads_somewhere(name: str) -> None:
    page = read(reports.render_html(runs.ALL[name]()))
    ids = [node.attributes["id"] for node in page.every() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    links = {node.attributes["href"] for node in page.every() if "href" in node.attributes}
    assert {link for link in links if link != "data:,"} <= {f"#{id_}" for id_ in ids}


@pytest.mark.parametrize("name", runs.ALL)
def test_a_page_asks_the_network_for_nothing_and_runs_no_script(name: str) -> None:
    html = reports.render_html(runs.ALL[name]())
    page = read(html)
    assert not [node for node in page.every() if "src" in node.attributes]
    for node in page.every():
        assert not [attribute for attribute in node.attributes if attribute.startswith("on")]
    assert [node.attributes for node in page.every("script")] == [
        {"type": "application/json", "id": "run-data"}
    ]
    css = next(page.every("style")).children[0]
    assert isinstance(css, str)
    assert "@import" not in css
    assert "url(" not in css
    policy = next(node for node in page.every("meta") if "http-equiv" in node.attributes)
    assert policy.attributes["content"].startswith("default-src 'none';")


@pytest.mark.parametrize("name", runs.ALL)
def test_the_same_records_give_the_same_bytes(name: str) -> None:
    first, second = runs.ALL[name](), runs.ALL[name]()
    assert reports.render_html(first) == reports.render_html(second)
    assert reports.render_summary(first) == reports.render_summary(second)


def test_no_page_exceeds_two_megabytes_not_even_one_of_long_hostile_trials() -> None:
    long = "<&>\u202e" * 25_000
    failed = [
        pieces.dialogue(
            n, claim, ok=False, expected=long, exchanges=(pieces.exchange(long, long),), error=long
        )
        for claim in pieces.PLAN
        for n in range(12)
    ]
    findings = [
        pieces.rate_finding(
            claim, long, [t for t in failed if t.claim == claim], reason=claim + long
        )
        for claim in pieces.PLAN
    ]
    manifest = pieces.manifest(
        server_info={"note": long, **{f"k{n}": "v" * 900 for n in range(900)}}
    )
    html = reports.render_html([manifest, *failed, *findings, *pieces.patches()])
    assert len(html.encode()) < 2_000_000
    assert len(reports.render_html(runs.large()).encode()) < 2_000_000


def test_the_data_of_the_page_is_its_manifest_and_findings() -> None:
    records = runs.unfaithful_after_abort()
    script = next(read(reports.render_html(records)).every("script"))
    data = json.loads(str(script.children[0]))
    assert data["manifest"]["run_id"] == "20261129T210411Z-a1b2c3"
    assert {finding["claim"] for finding in data["findings"]} == set(pieces.PLAN)
    failed = next(f for f in data["findings"] if f["outcome"] == "fail")
    assert (failed["k"], failed["n"], len(failed["trials"])) == (5, 14, 14)
    assert data["left_out"] == []


def test_data_too_large_for_a_page_says_what_was_left_out() -> None:
    records = runs.faithful()
    records[0] = pieces.manifest(server_info={"note": "n" * 500_000})
    data = json.loads(str(next(read(reports.render_html(records)).every("script")).children[0]))
    assert data["left_out"] == ["findings.trials", "server_info"]
    assert "server_info" not in data["manifest"]


def test_build_writes_both_files_and_reads_nothing_but_the_journal(tmp_path: Path) -> None:
    lines = b"".join(encode(record) + b"\n" for record in runs.faithful())
    (tmp_path / "run.jsonl").write_bytes(lines + b'{"kind": "torn')
    reports.build(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "report.html",
        "run.jsonl",
        "summary.md",
    ]
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html == reports.render_html(runs.faithful())


def test_build_without_a_journal_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot read the journal"):
        reports.build(tmp_path)


def test_any_part_of_a_journal_renders() -> None:
    """A kill can stop a run after any record, and a resume can repeat some."""
    draw = random.Random(3)  # noqa: S311 - data, not secrets
    whole = [*runs.unfaithful_after_abort(), *runs.hostile()]
    for _ in range(25):
        part = draw.sample(whole, draw.randrange(len(whole)))
        assert read(reports.render_html(part)).one("verdict").text
        assert reports.render_summary(part).startswith("## ")


def test_a_template_that_prints_what_the_view_lacks_is_an_error() -> None:
    template = _environment(lambda value: value).from_string("{{ report.nothing }}")
    with pytest.raises(Exception, match="has no attribute 'nothing'"):
        template.render(report=object())


def test_texts_reach_their_contrast_in_both_schemes() -> None:
    """WCAG AA: 4.5 to 1 for every tone on its own ground and for muted text on paper."""
    css = (TEMPLATES / "style.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)[:2]
    for block in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        pairs = [(tone, f"{tone}-bg") for tone in ("pass", "fail", "inconclusive", "error", "na")]
        pairs += [("ink", "paper"), ("muted", "paper"), ("muted", "panel"), ("link", "paper")]
        pairs += [("gap", "gap-bg"), ("r-ink", "r4"), ("r-ink", "r2"), ("r-ink", "r1")]
        pairs += [("r0-ink", "r0"), ("c-ink", "c1"), ("c-ink", "c2"), ("c-ink", "c3")]
        pairs += [(ink, f"{tone}-bg") for ink in ("ink", "muted") for tone in ("pass", "fail")]
        for ink, ground in pairs:
            ratio = _contrast(colours[ink], colours[ground])
            assert ratio >= 4.5, f"{ink} on {ground}: {ratio:.2f}"


def _contrast(first: str, second: str) -> float:
    bright, dim = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
