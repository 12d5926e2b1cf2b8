"""What a gate that has ended left behind."""

import json
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[3]


class Ended(NamedTuple):
    code: int
    text: str
    folder: Path

    @property
    def results(self):
        return json.loads((self.folder / "gate.sarif").read_text())["runs"][0]["results"]

    @property
    def rules(self):
        return {result["ruleId"] for result in self.results}


def junit_of(ended):
    return ET.parse(ended.folder / "gate-junit.xml").getroot()[0]  # noqa: S314 - our own file


def place(result):
    where = result["locations"][0]["physicalLocation"]
    return unquote(where["artifactLocation"]["uri"]), where["region"]["startLine"]
