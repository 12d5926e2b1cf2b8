"""From records to text: pure functions, the same bytes for the same records.

A template only loops and prints. Every string that it prints passes through `visible`, then through
the escaping of its language; what is not escaped is what is written in a template.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fidelity.records import AnyRecord, read_journal
from reports.view import Report, report_of
from reports.view_text import cut, one_line, plural, visible

SUMMARY_CARDS = 20
SUMMARY_ROWS = 200
LONGEST = 2_000
"""Characters of any one string on the page, whatever a server sent; the view cuts most shorter."""


def render_html(records: Iterable[AnyRecord]) -> str:
    """Return the whole report as one HTML page that needs no network and no JavaScript."""
    return _html().get_template("report.html.j2").render(report=report_of(records))


def render_summary(records: Iterable[AnyRecord]) -> str:
    """Return the report in GitHub's Markdown, short enough for a CI step summary."""
    report = report_of(records)
    cards, rows = report.cards, _rows(report)
    text = (
        _markdown()
        .get_template("summary.md.j2")
        .render(
            report=report,
            claim_rows=rows[:SUMMARY_ROWS],
            card_overflow=_overflow(len(cards) - SUMMARY_CARDS, "further reason"),
            row_overflow=_overflow(len(rows) - SUMMARY_ROWS, "further claim"),
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def build(run_dir: Path) -> None:
    """Write `report.html` and `summary.md` beside the journal of a run.

    Raises:
        JournalError: the journal cannot be read.
        OSError: the folder cannot be written.
    """
    records = list(read_journal(run_dir / "run.jsonl"))
    (run_dir / "report.html").write_text(render_html(records), encoding="utf-8", newline="\n")
    (run_dir / "summary.md").write_text(render_summary(records), encoding="utf-8", newline="\n")


def _rows(report: Report) -> list[Any]:
    return [row for suite in report.claims.suites for row in suite.rows]


def _overflow(count: int, noun: str) -> str:
    return f"{plural(count, noun)} in report.html." if count > 0 else ""


def _environment(finalize: Any) -> Environment:
    return Environment(
        loader=PackageLoader("reports"),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=False,
        lstrip_blocks=False,
        keep_trailing_newline=False,
    )


@cache
def _html() -> Environment:
    environment = _environment(_seen)
    environment.filters["script_safe"] = _script_safe
    return environment


def _seen(value: Any) -> Any:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(cut(value, LONGEST))


def _script_safe(text: str) -> Markup:
    """Return JSON as it stands, after a check that nothing in it can end a script element."""
    if "<" in text or "&" in text:
        raise ValueError("data for a script element must have '<' and '&' escaped")
    return Markup(text)  # noqa: S704 - checked in the line above


@cache
def _markdown() -> Environment:
    environment = _environment(_escaped_markdown)
    environment.filters["code_span"] = code_span
    environment.filters["code_block"] = code_block
    environment.filters["one_line"] = one_line
    return environment


_SIGNS = re.compile(r"[\\`*_\[\]~$]|^[#+=-]|(?<=^\d)[.)](?=\s)")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "@": "&#64;"})


def _escaped_markdown(value: Any) -> Any:
    """Return a printed value so that no text of a model is Markdown, HTML or a new line."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return Markup(escape_markdown(value))  # noqa: S704 - escaped in this line


def escape_markdown(text: str) -> str:
    """Return `text` on one line with every sign of Markdown and HTML escaped."""
    flat = " ".join(visible(text).split())
    return _SIGNS.sub(r"\\\g<0>", flat).translate(_ENTITIES)


def code_span(text: str) -> Markup:
    """Return `text` as inline code: a fence longer than any run of backticks in it."""
    flat = " ".join(visible(text).split())
    fence = _fence(flat, 1)
    return Markup(f"{fence} {flat} {fence}")  # noqa: S704 - nothing in it can close the fence


def code_block(text: str) -> Markup:
    """Return `text` as a code block: a fence longer than any run of backticks in it."""
    fence = _fence(text, 3)
    return Markup(f"{fence}sh\n{visible(text)}\n{fence}")  # noqa: S704 - as above


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
