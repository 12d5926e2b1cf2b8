"""Does a changed test file provably ask for as much? What cannot be proved is told.

Proved from the syntax alone: added tests, assertions, imports, helpers and cases; thresholds that
moved the strict way; renamed locals; what no run can tell. Everything else is a change of meaning.
"""

import ast
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import SequenceMatcher

from fidelity.gate.additions import adds_only, import_changes
from fidelity.gate.calls import call_asks_no_less, decorators_ask_no_less
from fidelity.gate.leniency import Way, number, sides
from fidelity.gate.loosened import Loosening
from fidelity.gate.meaning import Function, names_bound, normal, same
from fidelity.gate.thresholds import bindings, is_sweep, way_of_threshold

_BODIES = ("body", "orelse", "finalbody")
_HARMLESS_CONTEXTS = ("no_grad", "inference_mode")
_Compound = ast.If | ast.For | ast.While | ast.With | ast.Try


@dataclass(frozen=True, slots=True)
class _Place:
    """Where statements stand: in what function or class, and whether an assertion there counts."""

    name: str = ""
    kind: str = "module"
    counts: bool = True


def unproven(old: str, new: str) -> list[Loosening]:
    """Return each change that is not proved to ask for as much or more.

    A file that cannot be parsed proves nothing.
    """
    try:
        was, now = normal(old), normal(new)
    except (SyntaxError, ValueError):
        return [Loosening("it cannot be read as Python", 1)]
    return list(dict.fromkeys(_Comparison(was, now).bodies(was.body, now.body, _Place())))


class _Comparison:
    def __init__(self, was: ast.Module, now: ast.Module) -> None:
        self._was, self._now = was, now

    def bodies(
        self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], place: _Place
    ) -> Iterator[Loosening]:
        """Walk both in one order: every old statement must be there, the others only add."""
        taken = names_bound([*old, *self._was.body])
        if place.kind == "module":
            yield from (Loosening(f"{_where(place)}: {t}", n) for t, n in import_changes(old, new))
            old, new = (_without_imports(body) for body in (old, new))
        before, after = [ast.dump(s) for s in old], [ast.dump(s) for s in new]
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        line = new[0].lineno if new else 1
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag != "equal":
                left = list(old[i1:i2])
                yield from self._part(left, new[j1:j2], place, taken)
                for statement in left:
                    yield Loosening(f"{_where(place)}: gone: `{_short(statement)}`", line)

    def _part(
        self, left: list[ast.stmt], new: Sequence[ast.stmt], place: _Place, taken: AbstractSet[str]
    ) -> Iterator[Loosening]:
        """Pair what changed; what is left of the old statements has gone."""
        for statement in new:
            if left and _is_twin(left[0], statement):
                yield from self._pair(left.pop(0), statement, place)
            elif adds_only(statement, place.kind, taken, counts=place.counts):
                continue
            elif left and not isinstance(statement, Function | ast.ClassDef):
                words = f"`{_short(left.pop(0))}` is now `{_short(statement)}`"
                yield _told(place, words, statement)
            else:
                yield _told(place, f"new: `{_short(statement)}`", statement)

    def _pair(self, old: ast.stmt, new: ast.stmt, place: _Place) -> Iterator[Loosening]:
        if same(old, new):
            return
        if isinstance(old, Function) and isinstance(new, Function):
            yield from self._functions(old, new, place)
        elif isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            tests = old.name.startswith("Test") and not old.bases
            inner = _Place(old.name, "tests" if tests else "class")
            yield from self._inside(old, new, inner, place)
        elif isinstance(old, _Compound) and isinstance(new, _Compound):
            counts = place.counts and not _may_swallow(old)
            yield from self._inside(old, new, _Place(place.name, "function", counts), place)
        elif not (place.counts and self._asks_no_less(old, new)):
            yield _told(place, f"`{_short(old)}` is now `{_short(new)}`", new)

    def _functions(self, old: Function, new: Function, place: _Place) -> Iterator[Loosening]:
        name = f"{place.name}.{old.name}" if place.name else old.name
        inner = _Place(name, "function")
        if ast.dump(old.args) != ast.dump(new.args):
            yield _told(inner, f"its arguments are now `{ast.unparse(new.args)}`", new)
        if not decorators_ask_no_less(old, new):
            yield _told(inner, "its decorators are others", new)
        yield from self.bodies(old.body, new.body, inner)

    def _inside(
        self, old: ast.stmt, new: ast.stmt, inner: _Place, place: _Place
    ) -> Iterator[Loosening]:
        """Compare two statements that hold others: their heads must be the same."""
        if _head(old) != _head(new):
            yield _told(place, f"`{_short(old)}` is now `{_short(new)}`", new)
            return
        for field in _BODIES:
            yield from self.bodies(getattr(old, field, []), getattr(new, field, []), inner)

    def _asks_no_less(self, old: ast.stmt, new: ast.stmt) -> bool:
        match old, new:
            case ast.Assert(), ast.Assert():
                return _assertion_asks_no_less(old.test, new.test)
            case ast.Expr(value=ast.Call() as one), ast.Expr(value=ast.Call() as two):
                return call_asks_no_less(one, two)
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Assign(targets=[ast.Name(id=again)]):
                return name == again and self._constant_asks_no_less(name, old.value, new.value)
        return False

    def _constant_asks_no_less(self, name: str, old: ast.expr, new: ast.expr) -> bool:
        trees = (self._was, self._now)
        if any(bindings(name, tree) != 1 for tree in trees):
            return False
        was, now = number(old), number(new)
        if was is not None and now is not None:
            way = way_of_threshold(name, trees)
            return way is not Way.UNKNOWN and not way.looser(was, now)
        if isinstance(old, ast.Tuple | ast.List) and type(old) is type(new):
            more = [ast.dump(e) for e in getattr(new, "elts", [])]
            rest = iter(more)
            return all(ast.dump(e) in rest for e in old.elts) and is_sweep(name, trees)
        return False


def _is_twin(old: ast.stmt, new: ast.stmt) -> bool:
    """Tell whether two statements are two versions of one, by kind and name or by their target."""
    if type(old) is not type(new):
        return False
    if isinstance(old, Function | ast.ClassDef):
        return old.name == getattr(new, "name", None)
    if isinstance(old, ast.Assign) and isinstance(new, ast.Assign):
        return ast.dump(old.targets[0]) == ast.dump(new.targets[0])
    return True


def _without_imports(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [s for s in body if not isinstance(s, ast.Import | ast.ImportFrom)]


def _assertion_asks_no_less(old: ast.expr, new: ast.expr) -> bool:
    if isinstance(new, ast.BoolOp) and isinstance(new.op, ast.And):
        olds = old.values if isinstance(old, ast.BoolOp) and isinstance(old.op, ast.And) else [old]
        there = [ast.dump(value) for value in new.values]
        return all(ast.dump(value) in there for value in olds) and adds_only(
            ast.Assert(new), "function", frozenset(), counts=True
        )
    if not (isinstance(old, ast.Compare) and isinstance(new, ast.Compare)):
        return False
    if [type(op) for op in old.ops] != [type(op) for op in new.ops]:
        return False
    pairs = zip(sides(old), sides(new), strict=True)
    return all(_side_asks_no_less(was, now, way) for (was, way), (now, _) in pairs)


def _side_asks_no_less(old: ast.expr, new: ast.expr, way: Way) -> bool:
    if ast.dump(old) == ast.dump(new):
        return True
    was, now = number(old), number(new)
    known = was is not None and now is not None and way is not Way.UNKNOWN
    return known and not way.looser(was or 0.0, now or 0.0)


def _may_swallow(node: ast.stmt) -> bool:
    """Tell whether an assertion that fails below may go unnoticed."""
    if isinstance(node, ast.With):
        words = [ast.unparse(item.context_expr).rstrip("()") for item in node.items]
        return not all(word.endswith(_HARMLESS_CONTEXTS) for word in words)
    return isinstance(node, ast.Try)


def _head(node: ast.stmt) -> str:
    """Return what a statement is beside those that stand in it; handlers belong to it."""
    parts = [value for name, value in ast.iter_fields(node) if name not in _BODIES]
    return "; ".join(_flat(parts))


def _flat(parts: Sequence[object]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, list):
            yield f"[{'; '.join(_flat(part))}]"
        else:
            yield ast.dump(part) if isinstance(part, ast.AST) else repr(part)


def _told(place: _Place, words: str, node: ast.stmt) -> Loosening:
    return Loosening(f"{_where(place)}: {words}", getattr(node, "lineno", 1))


def _where(place: _Place) -> str:
    return place.name or "at the top of the file"


def _short(node: ast.stmt) -> str:
    return ast.unparse(node).partition("\n")[0][:80]
