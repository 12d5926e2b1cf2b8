"""The gate's findings as SARIF 2.1.0, which code hosts show at the lines of a change."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fidelity.config.config_file import FILE_NAME
from fidelity.gate.items import RULES, Item, shown
from fidelity.words import Outcome

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Outcome.FAIL: "error", Outcome.ERROR: "error", Outcome.INCONCLUSIVE: "warning"}


def sarif(items: Sequence[Item], prefix: str = "") -> dict[str, Any]:
    """Return the log: one result an item that is not a pass.

    Args:
        items: of the gate.
        prefix: from the root of the repository to fidelity.toml, with its slash.
    """
    rules = list(RULES)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "fidelity gate",
                        "rules": [
                            {"id": rule, "shortDescription": {"text": text}}
                            for rule, text in RULES.items()
                        ],
                    }
                },
                "originalUriBaseIds": {
                    "SRCROOT": {"description": {"text": "the root of the repository"}}
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(item, rules.index(item.rule), prefix)
                    for item in items
                    if item.outcome in _LEVELS
                ],
            }
        ],
    }


def _result(item: Item, rule: int, prefix: str) -> dict[str, Any]:
    uri = quote(os.fsencode(prefix + (item.path or FILE_NAME)))
    return {
        "ruleId": item.rule,
        "ruleIndex": rule,
        "level": _LEVELS[item.outcome],
        "message": {"text": shown(item.message)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri, "uriBaseId": "SRCROOT"},
                    "region": {"startLine": max(1, item.line)},
                }
            }
        ],
    }


def write_sarif(path: Path, items: Sequence[Item], prefix: str = "") -> None:
    """Write the log as a file."""
    path.write_text(json.dumps(sarif(items, prefix), indent=1) + "\n", encoding="utf-8")
