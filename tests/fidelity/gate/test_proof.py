"""What a change of a test file proves by its text, and what a person has to accept."""

import pytest

from fidelity.gate.proof import unproven
from tests.fidelity.gate.ended import place
from tests.fidelity.synthetic_fork import MICROTEST, commit, edit, write

OLD = '''
"""A microtest, or what judges one."""
import pytest
import torch
from fidelity.tensors import Case, Check, Selects, assert_patch

TOL = 1e-6
FLOOR = 0.9
SMALL_ROW = 1e-3
OUTLIER = 64.0
HEADS, DIM, WINDOW = 5, 48, 40
LENGTHS = (1, 2, 4)
LAYOUTS = {"both": {"m": 4, "topk": 29}}


class Selects:
    band: float = 2.0**-20
    needles: int = 0


class TestMore:
    def test_more(self):
        assert f() < 1e-3


@pytest.mark.parametrize("dtype, tol", [(f32, 1e-6), (bf16, 1e-2)])
def test_a(dtype, tol):
    x = f()
    y = x + 1
    assert err(x) < tol
    assert cos(y) > 0.999
    assert found >= FLOOR
    torch.testing.assert_close(x, y, rtol=1e-5, atol=0)


@given(power=st.integers(-12, 12), positions=st.lists(st.integers(0, 200)))
@settings(max_examples=25)
def test_b(power, positions):
    for k in LENGTHS:
        assert g(k) <= TOL
    assert_patch(c, b, r, [Case("x", {}), Case("y", {})], name="n", special=("x",))


def test_c():
    error = (candidate() - truth()).abs().max()
    selects = Selects(scores=true_scores, visible=visible)
    for sharp in (1.0, 6.0):
        examination.patch(c, b, r, cases(sharp), selects=selects)
    with pytest.raises(ValueError, match="shape"):
        f(1)
    assert error < 1e-5


def error_checks(mine, plain, tiny):
    limit = BASELINE_FACTOR * plain.max_abs + tiny * mine.scale
    row_limit = BASELINE_FACTOR * plain.worst_row + max(tiny, TINY / SMALL_ROW)
    masks = Check(name="masks", holds=mine.mask_differences == 0)
    return [masks, Check(name="largest", holds=mine.max_abs <= limit)]


def compare(difference, rows):
    return Comparison(max_abs=float(difference.max()), worst_row=float(rows.max()))


def take(self, checks):
    broken = [check for check in checks if check.holds is False]
    if broken:
        raise Violation(broken[0].sentence)


def twice():
    found = f()
    return g(found, [found for _ in found])


def whole_model(replacements):
    with _replaced(replacements):
        return logits(TOKENS)


def inputs(generator):
    yield "plain", randn(generator) ** 0.5 * 2
    yield "an outlier channel", outlier(generator)
'''
CHANGED = {
    "an argument that widens": ("visible=visible)", "visible=visible, band=1e9)"),
    "a factor": ("limit = BASELINE_FACTOR *", "limit = 5 * BASELINE_FACTOR *"),
    "a summand": ("+ tiny * mine.scale", "+ 0.05 * mine.scale"),
    "a floor of the limit": ("max(tiny, TINY / SMALL_ROW)", "max(tiny, 0.05)"),
    "holds, always": ("holds=mine.max_abs <= limit", "holds=True"),
    "holds, nearly always": ("mine.max_abs <= limit", "mine.max_abs <= 9 * limit"),
    "masks hold": ("holds=mine.mask_differences == 0", "holds=True"),
    "nothing holds": ("holds=mine.mask_differences == 0", "holds=None"),
    "max to mean": ("rows.max()", "rows.mean()"),
    "max to min": (".abs().max()", ".abs().min()"),
    "a constant of the judge": ("SMALL_ROW = 1e-3", "SMALL_ROW = 1.0"),
    "a constant that looks tighter": ("SMALL_ROW = 1e-3", "SMALL_ROW = 1e-9"),
    "a default": ("band: float = 2.0**-20", "band: float = 2.0**-2"),
    "a field that is none any more": ("needles: int = 0", "needles = 0"),
    "a no-op": ("    if broken:\n", "    if broken and 0:\n"),
    "a check that is dropped": ("[check for check in checks if check.holds is False]", "[]"),
    "nothing replaced": ("_replaced(replacements)", "_replaced({})"),
    "an outlier that is none": ("OUTLIER = 64.0", "OUTLIER = 1.0"),
    "an input that is gone": ('    yield "an outlier channel", outlier(generator)\n', ""),
    "another scale of inputs": ("** 0.5 * 2", "** 0.5 * 20"),
    "zero times": ("outlier(generator)", "0 * outlier(generator)"),
    "a range that is a point": ("st.integers(0, 200)", "st.integers(200, 200)"),
    "another range": ("st.integers(-12, 12)", "st.integers(12, 12)"),
    "sizes": ("HEADS, DIM, WINDOW = 5, 48, 40", "HEADS, DIM, WINDOW = 1, 1, 1"),
    "an entry": ('"topk": 29', '"topk": 1'),
    "a sweep of one value": ("(1.0, 6.0)", "(1.0, 1.0)"),
    "another sweep": ("(1, 2, 4)", "(1, 2, 3)"),
    "a helper": ("    x = f()", "    x = g()"),
    "what is raised": ('match="shape"', 'match="s"'),
    "an exception": ("raises(ValueError", "raises((ValueError, TypeError)"),
    "an assertion where it is caught": ("        f(1)\n", "        assert f(1)\n        f(1)\n"),
    "an assertion that acts": ("    x = f()\n", "    x = f()\n    assert (x := 0) == 0\n"),
    "a name that hides": ("import torch\n", "import torch\nfrom mine import assert_patch\n"),
    "all names": ("import torch\n", "import torch\nfrom mine import *\n"),
    "a builtin that is hidden": ("import torch\n", "import torch\n\ndef max(*x):\n    return 0\n"),
    "a hook": ("def test_c", "def pytest_itemcollected(item):\n    pass\n\n\ndef test_c"),
    "a fixture": (
        "def test_c",
        "@pytest.fixture(autouse=True)\ndef q():\n    pass\n\n\ndef test_c",
    ),
    "a call at import": ("OUTLIER = 64.0", "OUTLIER = 64.0\nMORE = patch_all()"),
    "a test that reaches out": ("def test_c", "def test_0():\n    m.TOL = 9\n\n\ndef test_c"),
    "the same test again": ("class TestMore", "def test_c():\n    pass\n\n\nclass TestMore"),
    "a threshold that is also an input": ("y = x + 1", "y = x + TOL"),
    "a method of a judge": (
        "    needles: int",
        "    def f(self):\n        pass\n\n    needles: int",
    ),
    "a local that hides a global": ("    y = x + 1", "    torch = x + 1"),
    "two locals that become one": ("[found for _ in found]", "[found for found in found]"),
    "a decorator": ("def test_c", "@only_once\ndef test_c"),
    "a default argument": ("def inputs(generator)", "def inputs(generator=None)"),
    "an import that may be a fixture": ("import pytest\n", ""),
}
FREE = {
    "nothing": ("", ""),
    "a docstring": ("A microtest, or what judges one.", "Another text."),
    "a new docstring": ("def test_c():", 'def test_c():\n    """Words."""'),
    "a comment": ("import torch", "import torch  # the maths"),
    "another layout": ("LENGTHS = (1, 2, 4)", "LENGTHS = (\n    1,\n    2,\n    4,\n)"),
    "annotations": ("def inputs(generator):", "def inputs(generator: Any) -> Iterator[Any]:"),
    "an annotated constant": ("OUTLIER = 64.0", "OUTLIER: float = 64.0"),
    "the name of a local": (
        "    found = f()\n    return g(found, [found for _ in found])\n",
        "    made = f()\n    return g(made, [made for _ in made])\n",
    ),
    "a tighter threshold": ("TOL = 1e-6", "TOL = 1e-9"),
    "a higher floor": ("FLOOR = 0.9", "FLOOR = 0.95"),
    "a tighter number": ("> 0.999", "> 0.9999"),
    "a tighter keyword": ("rtol=1e-5", "rtol=1e-6"),
    "a tighter column": ("(f32, 1e-6)", "(f32, 1e-7)"),
    "more examples": ("max_examples=25", "max_examples=250"),
    "one length more": ("(1, 2, 4)", "(1, 2, 3, 4)"),
    "one case more": ("(bf16, 1e-2)]", "(bf16, 1e-2), (f16, 1e-6)]"),
    "one input more": ('Case("y", {})]', 'Case("y", {}), Case("z", {})]'),
    "one examination more": ("name=", 'row_inputs=("x",), name='),
    "one special input more": ('special=("x",)', 'special=("x", "w")'),
    "one assertion more": ("    x = f()", "    x = f()\n    assert x is not None"),
    "one condition more": ("assert found >= FLOOR", "assert found >= FLOOR and found < 2"),
    "one examination of its own": ("    x = f()", "    x = f()\n    assert_patch(a, b, c, d)"),
    "one test more": ("def test_c", "def test_0(x):\n    assert x.y[0] == 1\n\n\ndef test_c"),
    "one method more": (
        "class TestMore:",
        "class TestMore:\n    def test_0(self):\n        assert 1\n",
    ),
    "one helper more": ("def test_c", "def helper(x, n=3):\n    return x[n]\n\n\ndef test_c"),
    "one constant more": ("OUTLIER = 64.0", "OUTLIER = 64.0\nWIDE = (1, 2)"),
    "one import more": ("import torch\n", "import math\nimport torch\n"),
    "one name more": ("import Case, Check,", "import Case, Check, Given,"),
    "imports in another order": ("import pytest\nimport torch\n", "import torch\nimport pytest\n"),
}


def changed(old, new):
    assert old in OLD
    return OLD.replace(old, new, 1)


def line_of(lines, words):
    (line,) = [line for line in lines if words in line]
    return line


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_meaning_is_told_with_its_line(name):
    found = unproven(OLD, changed(*CHANGED[name]))
    assert found, "it went unseen"
    assert all(f.line >= 1 and f.message for f in found)


@pytest.mark.parametrize("name", FREE)
def test_what_provably_asks_for_as_much_is_free(name):
    assert unproven(OLD, changed(*FREE[name])) == []


def test_a_test_that_is_gone_and_a_file_that_cannot_be_read_prove_nothing():
    assert unproven(OLD, OLD[: OLD.index("def test_c")])
    assert unproven(OLD, "def (")


def test_one_token_that_asks_for_less_is_a_finding_and_can_be_accepted_by_patch_or_file(
    repository, gate
):
    edit(repository, MICROTEST, ".abs().max()", ".abs().min()")
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert ended.rules == {"microtest-changed"}
    assert "what judges fast_norm changed" in ended.text
    text = (repository / MICROTEST).read_text().splitlines()
    assert place(ended.results[0]) == (MICROTEST, 1 + text.index(line_of(text, ".min()")))
    assert gate("--accept-loosened=fast_norm").code == 0
    assert gate(f"--accept-loosened={MICROTEST}").code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    return x * (x", "    return patch.fast_norm(x, weight)\n    return x * (x"),
        ("* weight\n\n", "* weight * (1.0 if x.dtype is torch.float64 else 1.03)\n\n"),
    ],
    ids=["the reference is the candidate", "a baseline that errs"],
)
def test_a_truth_that_is_bent_so_that_limits_widen_is_a_finding(repository, gate, old, new):
    edit(repository, MICROTEST, old, new)
    commit(repository)
    ended = gate()
    assert ended.code == 1, ended.text
    assert ended.rules & {"microtest-changed", "microtest-loosened"}


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("checks/more_inputs.py", "def inputs():\n    return [1]\n", 0),
        ("checks/conftest.py", '"""Nothing."""\n', 0),
        ("checks/conftest.py", "def pytest_itemcollected(item):\n    pass\n", 1),
        ("checks/stack.py", "x = 1\n", 1),
        ("checks/stack/__init__.py", "", 1),
        ("checks/random.py", "x = 1\n", 1),
    ],
)
def test_a_new_file_beside_a_microtest_is_free_where_nothing_can_use_it(
    light, gate, path, text, code
):
    write(light, path, text)
    ended = gate()
    assert ended.code == code, ended.text


def test_data_that_judge_cannot_prove_anything(light, gate):
    edit(light, "fidelity.toml", "[gate]", '[gate]\nmicrotest_support = ["data/"]')
    write(light, "data/truth.json", "[1]")
    commit(light)
    ended = gate("--accept-loosened=data/truth.json")
    assert ended.code == 0, ended.text
    ended = gate()
    assert ended.code == 1, ended.text
    assert "truth.json: it changed, and holds no Python" in ended.text
