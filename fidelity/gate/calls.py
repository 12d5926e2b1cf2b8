"""Calls that assert, and decorators that say how often: do they ask for as much as before?"""

import ast
from collections.abc import Iterator, Sequence

from fidelity.gate.leniency import Way, number
from fidelity.gate.meaning import Function
from fidelity.gate.thresholds import bindings, is_parametrize, way_of_threshold

_STRICT = {"rtol": Way.UP, "atol": Way.UP}
_MORE = ("row_inputs", "special")
"""Of `assert_patch`: names of inputs that are examined in a further way."""


def call_asks_no_less(old: ast.Call, new: ast.Call) -> bool:
    """Tell whether a call whose name begins with `assert` asks for as much as it did."""
    name = ast.unparse(old.func).rpartition(".")[2]
    if ast.dump(old.func) != ast.dump(new.func) or not name.startswith("assert"):
        return False
    if len(old.args) != len(new.args) or not all(map(_argument, old.args, new.args)):
        return False
    was, now = _keywords(old), _keywords(new)
    if was is None or now is None or set(was) - set(now):
        return False
    added = set(now) - set(was)
    if not added <= set(_MORE) or not all(_is_names(now[key]) for key in added):
        return False
    return all(_keyword(key, value, now[key]) for key, value in was.items())


def decorators_ask_no_less(old: Function, new: Function) -> bool:
    """Tell whether a test runs with at least the cases that it had."""
    if len(old.decorator_list) != len(new.decorator_list):
        return False
    pairs = zip(old.decorator_list, new.decorator_list, strict=True)
    return all(
        ast.dump(was) == ast.dump(now)
        or (
            isinstance(was, ast.Call)
            and isinstance(now, ast.Call)
            and ast.dump(was.func) == ast.dump(now.func)
            and (_cases(was, now, old, new) or _examples(was, now))
        )
        for was, now in pairs
    )


def _keywords(call: ast.Call) -> dict[str, ast.expr] | None:
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return {str(keyword.arg): keyword.value for keyword in call.keywords}


def _argument(old: ast.expr, new: ast.expr) -> bool:
    """The same, or a list of cases with more of them."""
    if ast.dump(old) == ast.dump(new):
        return True
    if not (isinstance(old, ast.List) and isinstance(new, ast.List)):
        return False
    return _is_part([ast.dump(e) for e in old.elts], [ast.dump(e) for e in new.elts])


def _keyword(key: str, old: ast.expr, new: ast.expr) -> bool:
    if ast.dump(old) == ast.dump(new):
        return True
    if key in _MORE and _is_names(old) and _is_names(new):
        return {e.value for e in _entries(old)} <= {e.value for e in _entries(new)}
    was, now = number(old), number(new)
    return key in _STRICT and was is not None and now is not None and now <= was


def _is_names(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List) and len([*_entries(node)]) == len(node.elts)


def _entries(node: ast.expr) -> Iterator[ast.Constant]:
    yield from (e for e in getattr(node, "elts", []) if isinstance(e, ast.Constant))


def _is_part(old: Sequence[str], new: Sequence[str]) -> bool:
    rest = iter(new)
    return all(entry in rest for entry in old)


def _examples(old: ast.Call, new: ast.Call) -> bool:
    """`settings(max_examples=N)` with a larger N."""
    if not ast.unparse(old.func).endswith("settings") or old.args or new.args:
        return False
    was, now = _keywords(old), _keywords(new)
    if was is None or now is None or set(was) != set(now):
        return False
    for key, value in was.items():
        before, after = number(value), number(now[key])
        larger = before is not None and after is not None and after >= before
        if ast.dump(value) != ast.dump(now[key]) and not (key == "max_examples" and larger):
            return False
    return True


def _cases(old: ast.Call, new: ast.Call, was: Function, now: Function) -> bool:
    """`parametrize` with the cases that it had, each at least as strict, and perhaps more."""
    if not (is_parametrize(old) and is_parametrize(new)):
        return False
    names, again = old.args[0], new.args[0]
    if ast.dump(names) != ast.dump(again) or not isinstance(names, ast.Constant):
        return False
    if [ast.dump(k) for k in old.keywords] != [ast.dump(k) for k in new.keywords]:
        return False
    lists = (old.args[1], new.args[1])
    if not all(isinstance(cases, ast.List | ast.Tuple) for cases in lists):
        return False
    columns = [word.strip() for word in str(names.value).split(",")]
    ways = [_way_of_column(column, was, now) for column in columns]
    rest = iter(getattr(lists[1], "elts", []))
    return all(
        any(_case(case, other, ways) for other in rest) for case in getattr(lists[0], "elts", [])
    )


def _way_of_column(name: str, was: Function, now: Function) -> Way:
    if any(bindings(name, function) != 1 for function in (was, now)):
        return Way.UNKNOWN
    return way_of_threshold(name, (was, now))


def _case(old: ast.expr, new: ast.expr, ways: Sequence[Way]) -> bool:
    if ast.dump(old) == ast.dump(new):
        return True
    if len(ways) == 1:
        return _cell(old, new, ways[0])
    cells = [case.elts if isinstance(case, ast.Tuple | ast.List) else [] for case in (old, new)]
    if not len(cells[0]) == len(cells[1]) == len(ways):
        return False
    return all(map(_cell, *cells, ways))


def _cell(old: ast.expr, new: ast.expr, way: Way) -> bool:
    if ast.dump(old) == ast.dump(new):
        return True
    was, now = number(old), number(new)
    known = was is not None and now is not None and way is not Way.UNKNOWN
    return known and not way.looser(was or 0.0, now or 0.0)
