"""Every suite says what it claims, has its control, and leaves HTTP and waiting to the harness."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = sorted((ROOT / "suites").glob("test_*.py"))
LABELS = ("Claim", "Why it breaks in practice", "A failure means", "Cost", "Needs")
FORBIDDEN_IMPORTS = {
    *("httpx", "requests", "aiohttp", "urllib", "http", "socket", "openai"),
    *("re", "regex", "time", "asyncio", "anyio", "tenacity"),
}
FORBIDDEN_CALLS = {"sleep", "retry", "approx", "isclose", "allclose"}
CONTROLLED_ELSEWHERE = {"hold"}
"""Of fidelity.checks.conformance: shows its judge each damage that a check names."""


def functions_of(tree):
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def called(node):
    """Return the calls below a node by the last part of their name."""
    calls = [found for found in ast.walk(node) if isinstance(found, ast.Call)]
    return [(getattr(c.func, "attr", getattr(c.func, "id", "")), c) for c in calls]


def missing_labels(source):
    lines = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    places = {}
    for number, line in enumerate(lines):
        label, colon, text = line.partition(":")
        if colon and label in LABELS and text.strip():
            places.setdefault(label, number)
    in_order = list(places) == [label for label in LABELS if label in places]
    return [label for label in LABELS if label not in places] + ([] if in_order else ["order"])


def without_control(source):
    return [
        test.name
        for test in functions_of(ast.parse(source))
        if not any(
            name in CONTROLLED_ELSEWHERE
            or (name == "control" and call.args and _is(call.args[0], "positive"))
            for name, call in called(test)
        )
    ]


def _is(node, value):
    return isinstance(node, ast.Constant) and node.value == value


def machinery(source):
    tree = ast.parse(source)
    imported = [
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    found = [name for name in imported if name.partition(".")[0] in FORBIDDEN_IMPORTS]
    found += [name for name, _ in called(tree) if name in FORBIDDEN_CALLS]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found + sorted(name for name in names if "retry" in name or "retries" in name)


def unused_axes(source):
    unused = []
    for test in functions_of(ast.parse(source)):
        read = {
            node.id
            for statement in test.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Name)
        }
        for decorator in test.decorator_list:
            for name, call in called(decorator):
                if name == "parametrize":
                    axes = ast.literal_eval(call.args[0])
                    axes = axes.split(",") if isinstance(axes, str) else axes
                    unused += [f"{test.name}[{a.strip()}]" for a in axes if a.strip() not in read]
    return unused


def test_there_are_suites():
    assert len(SUITES) >= 7


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.stem)
class TestSuite:
    def test_says_what_it_claims_in_five_labelled_lines(self, suite):
        assert missing_labels(suite.read_text()) == []

    def test_has_a_positive_control_in_each_test(self, suite):
        assert without_control(suite.read_text()) == []

    def test_leaves_http_waiting_and_tolerances_to_the_harness(self, suite):
        assert machinery(suite.read_text()) == []

    def test_uses_every_axis_that_it_is_parametrised_by(self, suite):
        assert unused_axes(suite.read_text()) == []


def test_the_equivalent_of_a_control_is_one():
    source = (ROOT / "fidelity/checks/conformance.py").read_text()
    (hold,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "hold"
    ]
    assert any(name == "control" and _is(call.args[0], "positive") for name, call in called(hold))


def test_faults_name_suites_that_exist():
    listed = subprocess.run(
        [sys.executable, "-m", "engine", "faults", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    stems = {path.stem for path in SUITES}
    stems |= {stem.removeprefix("test_") for stem in stems}
    faults = json.loads(listed.stdout)
    assert len(faults) >= 3
    unknown = {fault["name"]: sorted(set(fault["suites"]) - stems) for fault in faults}
    assert {name: suites for name, suites in unknown.items() if suites} == {}
    assert all(fault["suites"] for fault in faults)


GOOD = '''"""A suite.

Claim: facts are found.
Why it breaks in practice: pages.
A failure means: lost.
Cost: little.
Needs: chat.
"""
import pytest

@pytest.mark.parametrize("length, depth", [(1, 2)])
def test_facts(measure, length, depth):
    measure.control("positive", "the fact is cut out", [length])
    measure.rate_at_least(measure.ask([length, depth]), 0.8, title="t")
'''


def test_these_checks_see_what_is_missing():
    """Each check on a suite that lacks exactly what it looks for."""
    checks = (missing_labels, without_control, machinery, unused_axes)
    assert [check(GOOD) for check in checks] == [[], [], [], []]
    assert missing_labels(GOOD.replace("Cost: little.", "Cost:")) == ["Cost"]
    assert missing_labels(GOOD.replace("Claim", "Claims")) == ["Claim"]
    swapped = GOOD.replace("Cost: little.\nNeeds: chat.", "Needs: chat.\nCost: little.")
    assert missing_labels(swapped) == ["order"]
    assert without_control(GOOD.replace('"positive"', '"null"')) == ["test_facts"]
    assert without_control(GOOD.replace("measure.control", "print")) == ["test_facts"]
    for line, found in (
        ("import httpx", "httpx"),
        ("from time import sleep", "time"),
        ("import re as expressions", "re"),
        ("pytest.approx(1)", "approx"),
        ("retries = 3", "retries"),
    ):
        assert found in machinery(GOOD + line + "\n"), line
    assert unused_axes(GOOD.replace("[length, depth]", "[length]")) == ["test_facts[depth]"]
