"""Which tests are claims: those that ask for the fixture `measure` of this plugin."""

import re

import pytest

from fidelity.decisions import Claim

FIXTURE = "measure"
_FIRST_SENTENCE = re.compile(r"\A(.+?)(?:\.\s|\.\Z|\n\s*\n|\Z)", re.DOTALL)


def claim_of(item: pytest.Item) -> Claim:
    """Return the claim of a test: "<file stem>/<test name>[<param>]", both without "test_"."""
    suite = item.path.stem.removeprefix("test_")
    name = item.name.removeprefix("test_")
    return Claim(id=f"{suite}/{name}", suite=suite, title=_title(item) or name.replace("_", " "))


def _title(item: pytest.Item) -> str:
    documentation = getattr(getattr(item, "obj", None), "__doc__", None) or ""
    found = _FIRST_SENTENCE.match(documentation.strip())
    return " ".join(found.group(1).split()) if found else ""
