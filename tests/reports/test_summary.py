"""summary.md: fits a CI step summary, and no text of a model can break out of it."""

import re

import pytest

import reports
from reports.render import code_block, code_span, escape_markdown
from tests.reports import pieces, runs


@pytest.mark.parametrize("name", runs.ALL)
def test_a_summary_fits_a_step_summary_and_starts_with_the_verdict(name: str) -> None:
    summary = reports.render_summary(runs.ALL[name]())
    assert len(summary.encode()) < 64 * 1024
    assert re.match(r"## [✓✗?!…] (Faithful|Unfaithful|Undecided|No verdict)", summary)
    assert summary.endswith("\n")
    assert "\n\n\n" not in summary


@pytest.mark.parametrize("name", runs.ALL)
def test_every_row_of_a_table_has_the_cells_of_its_header(name: str) -> None:
    summary = reports.render_summary(runs.ALL[name]())
    for block in re.findall(r"(?:^\|.*\n)+", summary, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block
        assert set(block.splitlines()[1]) <= set("| -"), block


def test_the_summary_says_what_the_page_says() -> None:
    summary = reports.render_summary(runs.unfaithful_after_abort())
    assert "**To blame: the deployment.**" in summary
    assert "✗ 1 fail · ✓ 13 pass" in summary
    assert "  - Right by arm: after abort 5/14 and no abort 14/14." in summary
    assert "| 0.25 | 9/9 | 9/9 | 9/9 | 9/9 | 9/9 | 9/9 |" in summary
    assert "| ✗ fail | after an abort by closing" in summary
    assert "```sh\nfidelity run --deployment embedded --budget quick\n```" in summary


def test_text_of_a_model_is_neither_markup_nor_a_new_line() -> None:
    summary = reports.render_summary(runs.hostile())
    assert "<" not in summary.replace("'</script><script>alert(1)</script><img src=x ", "")[:3000]
    assert "\n## not a heading" not in summary
    assert "\\`x\\` ## not a heading &#124; cell" in summary


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a&#124;b"),
        ("`code`", "\\`code\\`"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("two\nlines\r\n\n# three", "two lines # three"),
        ("# head", "\\# head"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("0.8", "0.8"),
        ("**bold** _it_ ~~x~~ $x$", "\\*\\*bold\\*\\* \\_it\\_ \\~\\~x\\~\\~ \\$x\\$"),
        ("[link](http://x)", "\\[link\\](http://x)"),
        ("![image](http://x)", "!\\[image\\](http://x)"),
        ("back\\slash|", "back\\\\slash&#124;"),
        ("@someone", "&#64;someone"),
        ("\u202eevil", "⟨U+202E⟩evil"),
    ],
)
def test_every_sign_of_markdown_is_escaped(text: str, escaped: str) -> None:
    assert escape_markdown(text) == escaped


def test_a_command_cannot_leave_its_fence() -> None:
    assert code_span("a `` b\nc") == "``` a `` b c ```"
    assert code_block("a\n```\n# b") == "````sh\na\n```\n# b\n````"


def test_many_claims_are_counted_rather_than_listed() -> None:
    claims = [f"suite/claim_{n}" for n in range(400)]
    records = [pieces.manifest(planned_claims=tuple(claims))]
    records += [pieces.simple_pass(claim, f"{claim} {'x' * 400}") for claim in claims]
    summary = reports.render_summary(records)
    assert "200 further claims in report.html." in summary
    assert len(summary.encode()) < 128 * 1024
