"""A diff cannot bend the rules by which it is judged: each change of one is told, by its name."""

import json

import pytest

from tests.fidelity.gate.ended import place
from tests.fidelity.synthetic_fork import FILES, KERNEL, LIGHT, MICROTEST, commit, edit, fork, git
from tests.fidelity.synthetic_fork import write as put

TOML = FILES["fidelity.toml"]
SWITCH = 'on = { flags = ["--fast"] }\nactive_when = { patches = "fast_norm" }\n'
FULL = (
    TOML.replace('phase = "both"\n', f'phase = "both"\n{SWITCH}')
    + """\
microtest_support = ["checks/data/"]
suites = ["plumbing"]
deployment = "own"
budget = "standard"
effect_margin = 0.1
values = { fast_norm = "8" }

[deployments.own]
base_url = "http://127.0.0.1:1/v1"

[request]
temperature = 0.5
"""
)
BENT = {
    "gate.watch": ('watch = ["stack/**/*.py"]', "watch = []"),
    "gate.shared": ('shared = ["stack/layout.py"]', "shared = []"),
    "gate.microtest_support": ('microtest_support = ["checks/data/"]', ""),
    "gate.suites": ('suites = ["plumbing"]', 'suites = ["needle_sweep"]'),
    "gate.microtest_command": (
        "microtest_s = 120",
        'microtest_s = 120\nmicrotest_command = ["{python}", "-m", "pytest", "-k", "not small"]',
    ),
    "gate.budget": ('budget = "standard"', 'budget = "quick"'),
    "gate.effect_margin": ("effect_margin = 0.1", "effect_margin = 0.9"),
    "gate.values": ('fast_norm = "8"', 'fast_norm = "1024"'),
    "gate.deployment": ('deployment = "own"', ""),
    "deployments.own": ("127.0.0.1:1/", "127.0.0.1:2/"),
    "request": ("temperature = 0.5", "temperature = 0.0"),
    "patch.fast_norm.on": ('flags = ["--fast"]', 'flags = ["--slow"]'),
    "patch.fast_norm.active_when": ('patches = "fast_norm" }', 'log = "." }'),
}
FREE = {
    "watch": ('"stack/**/*.py"', '"stack/**/*.py", "csrc/"'),
    "suites": ('"plumbing"', '"plumbing", "needle_sweep"'),
    "budget": ('"standard"', '"deep"'),
    "margin": ("effect_margin = 0.1", "effect_margin = 0.01"),
    "time": ("microtest_s = 120", "microtest_s = 600"),
    "comment": ("[gate]", "# the gate\n[gate]"),
    "value": ('fast_norm = "8"', 'fast_norm = "8", slow_norm = "1"'),
}
SECOND = '\n[[patch]]\nname = "slow_norm"\n'
CONFIGURATION = {
    "pytest.ini": "[pytest]\naddopts = --deselect checks/test_fast_norm.py::{}\n",
    "checks/.pytest.ini": "[pytest]\naddopts = --deselect checks/test_fast_norm.py::{}\n",
    "tox.ini": "[pytest]\naddopts = --deselect checks/test_fast_norm.py::{}\n",
    "setup.cfg": "[tool:pytest]\naddopts = --deselect checks/test_fast_norm.py::{}\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = \"-k 'not {}'\"\n",
}
SMALL = "test_its_error_is_small"


@pytest.fixture
def ruled(tmp_path):
    return fork(tmp_path / "fork", {**FILES, **LIGHT, "fidelity.toml": FULL + SECOND})


def told(ended):
    return [r for r in ended.results if r["ruleId"] == "rules-changed" and r["level"] == "error"]


@pytest.mark.parametrize("name", BENT)
def test_a_rule_that_asks_for_less_is_a_finding_also_where_no_patch_changed(ruled, gate, name):
    edit(ruled, "fidelity.toml", *BENT[name])
    ended = gate("--microtests-only")
    assert ended.code == 1, ended.text
    (found,) = told(ended)
    assert "the gate's own rules changed: " in found["message"]["text"]
    assert f"--accept-rule {name} lets it through" in found["message"]["text"]
    assert place(found)[0] == "fidelity.toml"
    accepted = gate("--microtests-only", f"--accept-rule={name}")
    assert "accepted by --accept-rule" in accepted.text
    assert told(accepted) == []


@pytest.mark.parametrize("name", FREE)
def test_a_rule_that_asks_for_more_is_free(ruled, gate, name):
    edit(ruled, "fidelity.toml", *FREE[name])
    ended = gate("--microtests-only")
    assert ended.code == 0, ended.text


@pytest.mark.parametrize("path", CONFIGURATION)
def test_pytest_is_not_told_to_leave_out_the_test_that_would_fail(light, gate, path):
    put(light, path, CONFIGURATION[path].format(SMALL))
    edit(light, KERNEL, "x * weight", "x * weight * (1 if x > 1 else 1.1)")
    commit(light)
    ended = gate()
    assert ended.code == 1, ended.text
    assert f"the gate's own rules changed: {path} configures pytest" in ended.text
    assert place(told(ended)[0])[0] == path


def test_a_file_that_also_holds_other_things_is_free_where_pytest_is_told_nothing(light, gate):
    put(light, "pyproject.toml", '[project]\nname = "x"\nversion = "1"\n')
    put(light, "setup.cfg", "[metadata]\nname = x\n")
    put(light, "tools/pytest.ini", "[pytest]\n")  # above no microtest
    ended = gate()
    assert ended.code == 0, ended.text


def test_microtests_run_under_the_command_of_the_base(light, gate):
    edit(light, "fidelity.toml", *BENT["gate.microtest_command"])
    edit(light, KERNEL, "x * weight", "x * weight * (1 if x > 1 else 1.1)")
    commit(light)
    ended = gate()
    assert ended.code == 1, ended.text
    assert f"the patch fast_norm does not pass its microtest: {SMALL}" in ended.text
    assert ended.rules == {"rules-changed", "microtest"}


@pytest.mark.parametrize("path", ["sitecustomize.py", "colorsys/__init__.py"])
def test_a_module_that_would_be_imported_in_place_of_pytest_is_a_finding(light, gate, path):
    put(light, path, "")
    ended = gate()
    assert ended.code == 1, ended.text
    assert f"{path} is new, and imported in place of" in ended.text


def test_a_file_of_options_that_the_command_names_is_a_rule(light, gate):
    command = 'microtest_command = ["{python}", "-m", "pytest", "--config-file=ci/own.ini"]'
    edit(light, "fidelity.toml", "microtest_s = 120", f"microtest_s = 120\n{command}")
    put(light, "ci/own.ini", "[pytest]\n")
    commit(light)
    git(light, "branch", "--force", "main")
    put(light, "ci/own.ini", f"[pytest]\naddopts = -k 'not {SMALL}'\n")
    ended = gate()
    assert ended.code == 1, ended.text
    assert "ci/own.ini stands in microtest_command" in ended.text


def test_a_conftest_that_drops_tests_is_a_finding(light, gate):
    hook = "def pytest_itemcollected(item):\n    item.obj = lambda: None\n"
    put(light, "conftest.py", hook)
    edit(light, KERNEL, "x * weight", "x * weight * (1 if x > 1 else 1.1)")
    commit(light)
    ended = gate()
    assert ended.code == 1, ended.text


def test_a_stored_baseline_that_the_diff_makes_worse_is_not_used(repository, gate):
    edit(repository, "fidelity.toml", "[gate]", '[gate]\nbaseline = "baseline.json"')
    edit(repository, KERNEL, "x * weight / scale", "weight * x / scale")
    assert gate("--baseline-update").code == 0
    stored = json.loads((repository / "baseline.json").read_text())
    for effect in stored["microtests"]["fast_norm"]["effects"].values():
        effect["value"] = -effect["limit"]
    strict = json.dumps(stored)
    put(repository, "baseline.json", strict)
    commit(repository)
    git(repository, "branch", "--force", "main")
    edit(repository, KERNEL, "weight * x / scale", "x * weight / scale")
    for effect in stored["microtests"]["fast_norm"]["effects"].values():
        effect["value"] = effect["limit"]
    put(repository, "baseline.json", json.dumps(stored))
    ended = gate()
    assert ended.code == 1, ended.text
    assert ended.rules == {"rules-changed", "worse-than-baseline"}
    assert gate("--accept-rule=baseline.json").code == 0


def test_suites_of_an_entry_are_those_of_now_and_of_the_base(light, gate):
    edit(light, "fidelity.toml", 'phase = "both"', 'phase = "encoding"')
    ended = gate()
    assert ended.code == 0, ended.text
    assert "suites were not run (no deployment is named): all" in ended.text


def test_the_microtest_still_counts(light, gate):
    assert MICROTEST in LIGHT
    edit(light, KERNEL, "x * weight", "weight * x")
    ended = gate("--accept-rule=gate.watch")
    assert ended.code == 0, ended.text
    assert "--accept-rule: unchanged: gate.watch" in ended.text


@pytest.mark.parametrize("ref", ["HEAD", "HEAD~1", "@", "@{1}", "HEAD^"])
def test_a_base_that_follows_the_commit_that_is_judged_is_refused(light, gate, ref):
    edit(light, "fidelity.toml", "[gate]", f'[gate]\nbase = "{ref}"')
    edit(light, KERNEL, "x * weight", "x + weight")
    commit(light)
    ended = gate(base="")
    assert ended.code == 2, ended.text
    assert "follows the commit that is judged: name a branch" in ended.text
