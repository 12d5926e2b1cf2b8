"""The numbers of a statement in reading order, each with the way in which it is more lenient."""

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fidelity.gate.leniency import Way, number, sides, way_of_name

Display = ast.List | ast.Tuple | ast.Set | ast.Dict
_CLOSE = ("close", "approx")
_UP_TO = ("range", "integers")
"""Calls whose last argument says how far a sweep goes."""


class Number(NamedTuple):
    """A number of a statement, or how many entries a collection has."""

    label: str
    value: float
    way: Way
    line: int
    counts: bool = False
    """True for the size of a collection."""


class Numbers:
    """Reads statements; `names` are directions that are known from elsewhere in the file."""

    def __init__(self, names: Mapping[str, Way]) -> None:
        self._names = names

    def way(self, name: str) -> Way:
        """Return the direction of a name: by its use, else by its words."""
        return self._names.get(name, way_of_name(name))

    def of(self, node: ast.AST, way: Way = Way.UNKNOWN, label: str = "") -> Iterator[Number]:
        """Yield the numbers below a node that is read in one direction."""
        value = number(node)
        if value is not None:
            yield Number(label, value, way, getattr(node, "lineno", 1))
            return
        match node:
            case ast.Compare():
                for side, its_way in sides(node):
                    yield from self.of(side, its_way, ast.unparse(node))
            case ast.Assign() | ast.AnnAssign():
                yield from self._assigned(node)
            case ast.Call():
                yield from self._call(node, way, label)
            case ast.List() | ast.Tuple() | ast.Set() | ast.Dict():
                yield from self._display(node, way, label)
            case ast.BinOp(op=ast.Div() | ast.Sub()):
                yield from self.of(node.left, way, label)
                yield from self.of(node.right, way.other, label)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.of(child, way, label)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> Iterator[Number]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        name = ast.unparse(targets[0])
        if node.value is not None:
            yield from self.of(node.value, self.way(name), name)

    def _call(self, node: ast.Call, way: Way, label: str) -> Iterator[Number]:
        name = ast.unparse(node.func)
        if name.endswith("parametrize") and len(node.args) > 1:
            yield from self._parametrize(node)
            return
        inner = Way.UP if any(word in name for word in _CLOSE) else way
        yield from self.of(node.func, way, label)
        for argument in node.args:
            last = argument is node.args[-1] and name.endswith(_UP_TO)
            yield from self.of(argument, Way.DOWN if last else inner, label or name)
        for keyword in node.keywords:
            named = self.way(keyword.arg or "")
            yield from self.of(
                keyword.value, way if named is Way.UNKNOWN else named, str(keyword.arg)
            )

    def _parametrize(self, node: ast.Call) -> Iterator[Number]:
        """Each column of the cases has the direction of its argument's name."""
        first, cases = node.args[:2]
        text = _text(first)
        columns = [word.strip() for word in text.split(",")]
        if not isinstance(cases, ast.List | ast.Tuple):
            yield from self.of(cases, self.way(columns[0]), columns[0])
            return
        yield Number(f"cases of {text}", len(cases.elts), Way.DOWN, node.lineno, counts=True)
        for case in cases.elts:
            row = (
                case.elts if isinstance(case, ast.Tuple | ast.List) and len(columns) > 1 else [case]
            )
            for column, cell in zip(columns, row, strict=False):
                way = self.way(column)
                # of a plain sweep only its number of cases counts: 4 in place of 8 is another case
                yield from self.of(cell, way if way is Way.UP else Way.UNKNOWN, column)

    def _display(self, node: Display, way: Way, label: str) -> Iterator[Number]:
        size = len(node.keys if isinstance(node, ast.Dict) else node.elts)
        counted = f"entries of {label}" if label else "entries"
        yield Number(counted, size, Way.DOWN, node.lineno, counts=True)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                named = self.way(_text(key))
                yield from self.of(value, way if named is Way.UNKNOWN else named, label)
            return
        for item in node.elts:
            yield from self.of(item, way, label)


def _text(node: ast.expr | None) -> str:
    """Return the text that a node is; "" for any other."""
    value = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) else ""


class _Mask(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> ast.AST:
        if number(node) is not None:
            return ast.Name("_", ast.Load())
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            return ast.Name("__", ast.Load())
        return self.generic_visit(node)


def masked(node: ast.AST) -> str:
    """Return a statement with every number and every collection taken out of it."""
    return ast.unparse(ast.fix_missing_locations(_Mask().visit(copy.deepcopy(node))))
