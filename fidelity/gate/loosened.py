"""Does a test file ask for less than it did? Read from its syntax, without running it.

Seen: tests and assertions that are gone, numbers that moved the lenient way, fewer cases, new skip
and xfail marks, new ways around an assertion. What helpers compute is not seen; the base's version
of the microtest is run for that (`overlay`).
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fidelity.gate.leniency import Way, ways_by_use
from fidelity.gate.numbers_of import Number, Numbers, masked

_WAYS_OUT = frozenset(
    (
        "skip",
        "skipif",
        "xfail",
        "importorskip",
        "SkipTest",
        "skipTest",
        "skipUnless",
        "skipIf",
        "suppress",
        "collect_ignore",
        "collect_ignore_glob",
        "pytest_collection_modifyitems",
        "pytest_ignore_collect",
        "pytest_deselected",
        "__test__",
    )
)
_ASSERTING = ("assert", "check", "expect", "must", "raises", "examine_patch")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Loosening(NamedTuple):
    """One thing that a test asks for no more; `line` is that of the new file."""

    message: str
    line: int


@dataclass(slots=True)
class _Scope:
    """One function, or the rest of the file under the name ""."""

    line: int = 1
    statements: dict[str, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    ways_out: Counter[str] = field(default_factory=Counter)


def loosened(old: str, new: str) -> list[Loosening]:
    """Compare two versions of a test file.

    A file that cannot be parsed is left to the run: it cannot pass.
    """
    try:
        before, after = ast.parse(old), ast.parse(new)
    except (SyntaxError, ValueError):
        return []
    names = {**ways_by_use(before), **ways_by_use(after)}
    was, now = _scopes(before), _scopes(after)
    found: list[Loosening] = []
    for name, scope in was.items():
        if name in now:
            found += _compared(name, scope, now[name], Numbers(names))
        elif _is_test(name):
            found.append(Loosening(f"the test {name} is gone", 1))
    for name, scope in now.items():
        known = was[name].ways_out if name in was else Counter()
        if name in was or not _is_test(name):  # a new test may well be skipped
            found += [
                Loosening(f"{_where(name)}: new `{word}`", scope.line)
                for word in scope.ways_out - known
            ]
    return list(dict.fromkeys(found))


def _is_test(name: str) -> bool:
    return name.rpartition(".")[2].startswith("test")


def _where(name: str) -> str:
    return name or "at the top of the file"


def _scopes(tree: ast.Module) -> dict[str, _Scope]:
    found = {"": _Scope()}
    _fill(tree, "", found)
    return found


def _fill(node: ast.AST, name: str, found: dict[str, _Scope]) -> None:
    """Put the statements below a node where they belong: to the function around them."""
    for child in ast.iter_child_nodes(node):
        scope = found[name]
        if isinstance(child, _Function | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
            made = found.setdefault(inner, _Scope(line=child.lineno))
            for part in (*child.decorator_list, *_defaults(child)):
                _keep(made, part)
            _count_ways_out(made, child, own=True)
            _fill_body(child, inner, found)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.withitem | ast.expr):
            _count_ways_out(scope, child, own=False)
            if _is_simple(child):
                _keep(scope, child)
            else:
                _fill(child, name, found)


def _fill_body(node: _Function | ast.ClassDef, name: str, found: dict[str, _Scope]) -> None:
    for statement in node.body:
        _fill(ast.Module([statement], []), name, found)


def _defaults(node: _Function | ast.ClassDef) -> Iterator[ast.AST]:
    """Give each default the look of an assignment, so that it has a name."""
    if isinstance(node, ast.ClassDef):
        return
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    count = len(arguments.defaults)
    pairs = [*zip(plain[len(plain) - count :], arguments.defaults, strict=True)]
    pairs += [
        (a, d)
        for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if d is not None
    ]
    for argument, default in pairs:
        target = ast.Name(argument.arg, ast.Store())
        yield ast.copy_location(ast.Assign([target], default), default)


def _is_simple(node: ast.AST) -> bool:
    return isinstance(node, ast.expr) or (
        isinstance(node, ast.stmt) and not any(hasattr(node, part) for part in ("body", "cases"))
    )


def _keep(scope: _Scope, node: ast.AST) -> None:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        scope.statements[masked(node)].append(node)


def _count_ways_out(scope: _Scope, node: ast.AST, *, own: bool) -> None:
    """Count what leads around an assertion; of a function only its decorators are its own."""
    if own:
        parts: list[ast.AST] = list(getattr(node, "decorator_list", []))
        name = getattr(node, "name", "")
        scope.ways_out.update([name] if name in _WAYS_OUT else [])
    else:
        parts = [node] if _is_simple(node) else []
        scope.ways_out.update(["return"] if isinstance(node, ast.Return) else [])
        scope.ways_out.update(["except"] if isinstance(node, ast.excepthandler) else [])
    for part in parts:
        for inner in ast.walk(part):
            word = getattr(inner, "attr", getattr(inner, "id", ""))
            scope.ways_out.update([word] if word in _WAYS_OUT else [])


def _compared(name: str, was: _Scope, now: _Scope, numbers: Numbers) -> list[Loosening]:
    found: list[Loosening] = []
    new_calls = [
        n
        for text, nodes in now.statements.items()
        for n in nodes[len(was.statements.get(text, ())) :]
    ]
    for text, nodes in was.statements.items():
        others = now.statements.get(text, [])
        for old, new in zip(nodes, others, strict=False):
            found += _moved(name, [*numbers.of(old)], [*numbers.of(new)])
        for old in nodes[len(others) :]:
            found += _gone(name, old, new_calls, now, numbers)
    return found


def _moved(name: str, was: list[Number], now: list[Number]) -> list[Loosening]:
    """Return the numbers of one statement that moved the lenient way."""
    pairs = zip(was, now, strict=True) if len(was) == len(now) else _by_label(was, now)
    return [
        Loosening(f"{_where(name)}: {_words(old, new)}", new.line)
        for old, new in pairs
        if new.way.looser(old.value, new.value)
    ]


def _words(old: Number, new: Number) -> str:
    return f"{old.label or 'a number'} was {old.value:g}, is {new.value:g}"


def _by_label(was: list[Number], now: list[Number]) -> list[tuple[Number, Number]]:
    """Pair numbers of collections that have changed their length: the most lenient of each."""
    found = []
    for label in dict.fromkeys(number.label for number in was):
        mine = [n for n in was if n.label == label]
        theirs = [n for n in now if n.label == label]
        if theirs:
            found.append((_one_of(mine), _one_of(theirs)))
    return found


def _one_of(numbers: list[Number]) -> Number:
    """Return the most lenient number, and of the sizes of collections their sum."""
    first = numbers[0]
    if first.counts:
        return first._replace(value=sum(n.value for n in numbers))
    worst = max if first.way is Way.UP else min
    return worst(numbers, key=lambda number: number.value)


def _gone(
    name: str, old: ast.AST, candidates: list[ast.AST], now: _Scope, numbers: Numbers
) -> list[Loosening]:
    """Say what a statement that is there no more means: nothing, unless it asked for something."""
    if isinstance(old, ast.Assert):
        return [Loosening(f"{_where(name)}: gone: `{ast.unparse(old)[:120]}`", now.line)]
    if isinstance(old, ast.Assign) and numbers.way(ast.unparse(old.targets[0])) is not Way.UNKNOWN:
        if not [*numbers.of(old)]:
            return []
        return [Loosening(f"{_where(name)}: gone: `{ast.unparse(old)[:120]}`", now.line)]
    call = _asserting_call(old)
    if call is None:
        return []
    for other in candidates:
        new = _asserting_call(other)
        if new is not None and masked(new.func) == masked(call.func):
            return _call_changed(name, call, new, numbers)
    return [Loosening(f"{_where(name)}: gone: `{ast.unparse(call)[:120]}`", now.line)]


def _asserting_call(node: ast.AST) -> ast.Call | None:
    """Return the first call of a statement whose name says that it asserts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            last = ast.unparse(inner.func).rpartition(".")[2]
            if last.startswith(_ASSERTING):
                return inner
    return None


def _call_changed(name: str, old: ast.Call, new: ast.Call, numbers: Numbers) -> list[Loosening]:
    """Compare two calls of one asserting function, argument by argument."""
    func = ast.unparse(old.func)
    was = {k.arg: k.value for k in old.keywords}
    now = {k.arg: k.value for k in new.keywords}
    gone = [f"{key}={ast.unparse(value)[:60]}" for key, value in was.items() if key not in now]
    gone += [
        f"{key}={ast.unparse(value)[:60]}"
        for key, value in was.items()
        if key in now and masked(value) != masked(now[key])
    ]
    if [masked(a) for a in old.args] != [masked(a) for a in new.args]:
        gone += [ast.unparse(a)[:60] for a in old.args if masked(a) not in map(masked, new.args)]
    found = [Loosening(f"{_where(name)}: {func} lost `{text}`", new.lineno) for text in gone]
    added = [k for k in new.keywords if k.arg not in was]
    lenient = [k for k in added if numbers.way(k.arg or "") is Way.UP or _is_false(k.value)]
    found += [
        Loosening(f"{_where(name)}: {func} got `{k.arg}={ast.unparse(k.value)[:60]}`", new.lineno)
        for k in lenient
    ]
    for key in was.keys() & now.keys():
        one = ast.keyword(key, was[key])
        two = ast.keyword(key, now[key])
        found += _moved(name, _of_keyword(one, numbers), _of_keyword(two, numbers))
    return found


def _of_keyword(keyword: ast.keyword, numbers: Numbers) -> list[Number]:
    return [*numbers.of(keyword.value, numbers.way(keyword.arg or ""), str(keyword.arg))]


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
