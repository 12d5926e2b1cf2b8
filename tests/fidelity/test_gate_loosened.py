"""What is seen, and what is left alone, when the text of a microtest changes."""

import pytest

from fidelity.gate.leniency import Way, way_of_name
from fidelity.gate.loosened import loosened

OLD = """
import pytest
import torch

TOL = 1e-6
FLOOR = 0.9
LIMIT = {"a": 1e-3}
LENGTHS = (1, 2, 4)


@pytest.mark.parametrize("dtype, tol", [(f32, 1e-6), (bf16, 1e-2)])
def test_a(dtype, tol):
    x = f()
    assert err(x) < tol
    assert cos(x) > 0.999
    assert found >= FLOOR
    torch.testing.assert_close(x, y, rtol=1e-5, atol=0)


@given(n=st.integers(1, 30))
@settings(max_examples=25)
def test_b(n):
    for k in LENGTHS:
        assert g(k) <= TOL
    cases = [Case("x", {}), Case("y", {})]
    assert_patch(c, b, r, [Case("x", {}), Case("y", {})], name="n", special=("x",))


def helper(width=64, tolerance=1e-3):
    return torch.randn(width)
"""

LOOSER = {
    "a constant": ("TOL = 1e-6", "TOL = 1e-3", "TOL was 1e-06, is 0.001"),
    "a constant that became a call": ("TOL = 1e-6", "TOL = big()", "gone: `TOL = 1e-06`"),
    "a product": ("TOL = 1e-6", "TOL = 1e-6 * 100", "TOL was 1e-06, is 0.0001"),
    "a floor, by its use": ("FLOOR = 0.9", "FLOOR = 0.5", "FLOOR was 0.9, is 0.5"),
    "a table": ('"a": 1e-3', '"a": 2e-3', "LIMIT was 0.001, is 0.002"),
    "a sweep": ("(1, 2, 4)", "(1, 2)", "entries of LENGTHS was 3, is 2"),
    "a column": ("(bf16, 1e-2)", "(bf16, 1)", "tol was 0.01, is 1"),
    "a case": (", (bf16, 1e-2)", "", "cases of dtype, tol was 2, is 1"),
    "a bound": ("< tol", "< tol * 100", "gone: `assert err(x) < tol`"),
    "a threshold": ("> 0.999", "> 0.9", "was 0.999, is 0.9"),
    "a keyword": ("rtol=1e-5", "rtol=1e-1", "rtol was 1e-05, is 0.1"),
    "a keyword less": (", rtol=1e-5", "", "lost `rtol=1e-05`"),
    "examples": ("max_examples=25", "max_examples=2", "max_examples was 25, is 2"),
    "a range": ("integers(1, 30)", "integers(1, 3)", "was 30, is 3"),
    "an assertion": ("    assert cos(x) > 0.999\n", "", "gone: `assert cos(x) > 0.999`"),
    "or True": ("<= TOL", "<= TOL or True", "gone: `assert g(k) <= TOL`"),
    "an examination": (', special=("x",)', "", "lost `special=('x',)`"),
    "must_differ": (", special", ", must_differ=False, special", "got `must_differ=False`"),
    "an input": (', Case("y", {})], name', "], name", "entries of assert_patch was 2, is 1"),
    "another candidate": ("(c, b, r", "(b, b, r", "lost `c`"),
    "a test": ("def test_b", "def xtest_b", "the test test_b is gone"),
    "a mark": ("def test_b", "@pytest.mark.xfail\ndef test_b", "new `xfail`"),
    "a mark of the file": ("TOL =", "pytestmark = pytest.mark.skip\nTOL =", "new `skip`"),
    "a call": ("    x = f()", "    pytest.skip('x')\n    x = f()", "new `skip`"),
    "a way out": ("    x = f()", "    if x:\n        return\n    x = f()", "new `return`"),
    "a default": ("tolerance=1e-3", "tolerance=1e-1", "tolerance was 0.001, is 0.1"),
    "what is caught": (
        "    assert found >= FLOOR",
        "    try:\n        assert found >= FLOOR\n    except Exception:\n        pass",
        "new `except`",
    ),
}
HARMLESS = {
    "nothing": ("", ""),
    "a tighter constant": ("TOL = 1e-6", "TOL = 1e-9"),
    "a higher floor": ("FLOOR = 0.9", "FLOOR = 0.95"),
    "one length more": ("(1, 2, 4)", "(1, 2, 4, 8)"),
    "a tighter threshold": ("> 0.999", "> 0.9999"),
    "more examples": ("max_examples=25", "max_examples=250"),
    "one input more": ('Case("y", {})], name', 'Case("y", {}), Case("z", {})], name'),
    "one examination more": ("special=", 'row_inputs=("x",), special='),
    "a comment": ("import torch", "import torch  # the maths"),
    "another helper": ("    x = f()", "    x = g()"),
    "one assertion more": ("    x = f()", "    x = f()\n    assert x is not None"),
    "one test more": ("def helper", "def test_c():\n    pytest.skip('later')\n\n\ndef helper"),
    "one case more": ("(bf16, 1e-2)]", "(bf16, 1e-2), (f16, 1e-6)]"),
}


def changed(old, new):
    assert old in OLD
    return OLD.replace(old, new, 1)


@pytest.mark.parametrize("name", LOOSER)
def test_what_asks_for_less_is_seen_and_named(name):
    old, new, words = LOOSER[name]
    found = loosened(OLD, changed(old, new))
    assert any(words in f.message for f in found), found


@pytest.mark.parametrize("name", HARMLESS)
def test_what_asks_for_as_much_or_more_is_left_alone(name):
    assert loosened(OLD, changed(*HARMLESS[name])) == []


def test_what_cannot_be_parsed_is_left_to_the_run():
    assert loosened(OLD, "def (") == []


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("rtol", Way.UP),
        ("MAX_ERR", Way.UP),
        ("max_examples", Way.DOWN),
        ("MIN_COSINE", Way.DOWN),
        ("cosineTolerance", Way.UP),
        ("must_differ", Way.DOWN),
        ("equal_nan", Way.UP),
        ("seed", Way.UNKNOWN),
    ],
)
def test_names_say_which_way_is_lenient(name, way):
    assert way_of_name(name) is way
