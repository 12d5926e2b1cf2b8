"""Every suite file states its claim, costs what it says, and owns a positive control."""

import ast
from pathlib import Path

import pytest

SUITES = sorted((Path(__file__).parents[2] / "suites").glob("test_*.py"))
LABELS = ("Claim:", "Why it breaks in practice:", "A failure means:", "Cost:", "Needs:")
BANNED = {"httpx", "time", "re", "asyncio", "anyio", "socket", "random", "requests"}


@pytest.fixture(params=SUITES, ids=lambda path: path.stem)
def suite(request):
    return ast.parse(request.param.read_text(encoding="utf-8"))


def test_the_docstring_has_the_five_labels_in_order(suite):
    text = ast.get_docstring(suite) or ""
    places = [text.find(label) for label in LABELS]
    assert -1 not in places
    assert places == sorted(places)


def test_no_http_sleep_or_regex_in_a_suite(suite):
    names = {
        name.split(".")[0]
        for node in ast.walk(suite)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not names & BANNED


def test_each_test_is_one_sentence_with_a_sentence_for_its_claim(suite):
    tests = [node for node in suite.body if isinstance(node, ast.FunctionDef)]
    tests = [node for node in tests if node.name.startswith("test_")]
    assert tests
    for node in tests:
        assert "measure" in [argument.arg for argument in node.args.args]
        assert (ast.get_docstring(node) or "").endswith(".")
