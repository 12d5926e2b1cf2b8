"""Do two pieces of Python mean the same?

Docstrings, comments, annotations of functions and the names of a function's locals do not count.
Annotations in the body of a class stay: dataclasses and msgspec read them.
"""

import ast
import builtins
import copy
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Match)
_SEEN_BY_NAME = frozenset(("locals", "vars", "eval", "exec", "globals", "dir"))


def normal(source: str) -> ast.Module:
    """Return the syntax of a file without what no run can tell.

    Raises:
        SyntaxError, ValueError: it cannot be parsed.
    """
    tree = ast.parse(source)
    _Plain().visit(tree)
    return ast.fix_missing_locations(tree)


def same(one: ast.AST, other: ast.AST) -> bool:
    """Tell whether two pieces of syntax mean the same."""
    if ast.dump(one) == ast.dump(other):
        return True
    if isinstance(one, Function) and isinstance(other, Function):
        first, second = _renamed(one), _renamed(other)
        return first is not None and second is not None and ast.dump(first) == ast.dump(second)
    return False


def names_bound(body: list[ast.stmt]) -> set[str]:
    """Return every name that statements bind in their own scope, also below `if` and `with`."""
    found: set[str] = set()
    for statement in body:
        for node in _own_nodes(statement):
            if isinstance(node, Function | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                found.add(node.id)
    return found


def names_read(tree: ast.AST) -> set[str]:
    """Return every name that is read anywhere below."""
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def is_builtin(name: str) -> bool:
    """Tell whether a name that is bound would hide one of the language's."""
    return hasattr(builtins, name)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, (*_NESTED, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _own_nodes(child)


class _Plain(ast.NodeTransformer):
    def __init__(self) -> None:
        self._in_class = False

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self._in_class = self._in_class, True
        made = self.generic_visit(node)
        self._in_class = outer
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self._in_class or not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        if node.value is None:
            return None
        plain = ast.Assign([node.target], node.value)
        return self.generic_visit(ast.copy_location(plain, node))

    def _function(self, node: Function) -> ast.AST:
        outer, self._in_class = self._in_class, False
        node.returns = None
        made = self.generic_visit(node)
        self._in_class = outer
        return made

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node


def _renamed(node: Function) -> Function | None:
    """Return a function with its locals numbered; None where letters of a name could matter."""
    if any(isinstance(inner, _NESTED) for inner in ast.walk(node) if inner is not node):
        return None
    if names_read(node) & _SEEN_BY_NAME:
        return None
    fixed = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
    fixed |= {
        n for i in ast.walk(node) if isinstance(i, ast.Global | ast.Nonlocal) for n in i.names
    }
    bound = {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }
    made = copy.deepcopy(node)
    _Numbered(bound - fixed).visit(made)
    return made


class _Numbered(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._numbers: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._names:
            node.id = self._numbers.setdefault(node.id, f"{len(self._numbers)} local")
        return node
