"""The findings and the manifest as data, to be read from the page by a program."""

import json
import math
from typing import Any

import msgspec

from fidelity.records import Finding, Record
from reports.view_journal import Journal
from reports.view_text import cut

LIMIT_CHARS = 400_000


def data_of(journal: Journal) -> str:
    """Return manifest, findings, patches and verdict as JSON, safe inside `<script>` and in HTML.

    Every `<`, `>`, `&` and line separator is escaped, so no text of a model can end the element.
    Where the whole is too large, ids of trials and then the server's own description are left out.
    """
    full = _payload(journal, trials=True, server=True)
    for candidate in (
        full,
        _payload(journal, trials=False, server=True),
        _payload(journal, trials=False, server=False),
    ):
        text = _script_safe(candidate)
        if len(text) <= LIMIT_CHARS:
            return text
    return _script_safe({"left_out": "too large for a page; read run.jsonl"})


def _payload(journal: Journal, *, trials: bool, server: bool) -> dict[str, Any]:
    left_out = [
        name for name, kept in (("findings.trials", trials), ("server_info", server)) if not kept
    ]
    manifest = _plain(journal.manifest)
    if manifest and not server:
        manifest.pop("server_info", None)
    return {
        "manifest": manifest,
        "findings": [_finding(finding, trials=trials) for finding in journal.findings],
        "patches": [_plain(patch) for patch in journal.patches],
        "verdict": _plain(journal.verdict),
        "left_out": left_out,
    }


def _plain(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def _finding(finding: Finding, *, trials: bool) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(finding)
    if not trials:
        plain.pop("trials")
    plain["reason"] = cut(finding.reason, 4_000)
    plain["title"] = cut(finding.title, 1_000)
    return plain


_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def _script_safe(payload: dict[str, Any]) -> str:
    text = json.dumps(_finite(payload), ensure_ascii=True, sort_keys=True, allow_nan=False)
    return text.translate(_ESCAPES)


def _finite(value: Any) -> Any:
    """Return the value with null for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
