"""Names whose number is a threshold and nothing else: every reading of them stands in an assertion.

Only of these does a tighter number prove that a test asks for more. The same for collections: a
longer one is more where each reading is a sweep of assertions, or the cases of `parametrize`.
"""

import ast
from collections.abc import Iterator, Sequence

from fidelity.gate.leniency import Way, number, sides


def way_of_threshold(name: str, trees: Sequence[ast.AST]) -> Way:
    """Return the lenient way of a name, if every reading of it says the same; else unknown."""
    found: set[Way] = set()
    for tree in trees:
        known = dict(_in_assertions(tree))
        for node in _readings(name, tree):
            found.add(known.get(id(node), Way.UNKNOWN))
    return found.pop() if len(found) == 1 else Way.UNKNOWN


def is_sweep(name: str, trees: Sequence[ast.AST]) -> bool:
    """Tell whether each reading of a collection only adds assertions with each of its entries."""
    found = []
    for tree in trees:
        known = set(_sweeps(tree))
        found += [id(node) in known for node in _readings(name, tree)]
    return bool(found) and all(found)


def bindings(name: str, tree: ast.AST) -> int:
    """Return how often a name is bound anywhere in a file, also as an argument."""
    return sum(
        (isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.arg) and node.arg == name)
        or (isinstance(node, ast.Global | ast.Nonlocal) and name in node.names)
        for node in ast.walk(tree)
    )


def _readings(name: str, tree: ast.AST) -> Iterator[ast.Name]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node


def _in_assertions(tree: ast.AST) -> Iterator[tuple[int, Way]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert):
            continue
        parts = [node.test]
        if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
            parts = node.test.values
        for part in parts:
            for side, way in sides(part) if isinstance(part, ast.Compare) else ():
                name = _scaled(side)
                if name is not None:
                    yield id(name), way


def _scaled(node: ast.expr) -> ast.Name | None:
    """Return the name that an operand is, also times or divided by a positive number."""
    if isinstance(node, ast.Name):
        return node
    if not isinstance(node, ast.BinOp):
        return None
    left, right = number(node.left), number(node.right)
    if isinstance(node.op, ast.Mult) and left is not None and left > 0:
        return _scaled(node.right)
    if isinstance(node.op, ast.Mult | ast.Div) and right is not None and right > 0:
        return _scaled(node.left)
    return None


def _sweeps(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_parametrize(node):
            yield id(node.args[1])
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            for inner in node.body:
                if isinstance(inner, ast.For) and _only_asserts(inner, node):
                    yield id(inner.iter)


def is_parametrize(node: ast.Call) -> bool:
    """Tell whether a call is `pytest.mark.parametrize(names, cases)`."""
    return ast.unparse(node.func).endswith("mark.parametrize") and len(node.args) == 2


def _only_asserts(loop: ast.For, around: ast.FunctionDef) -> bool:
    """Tell whether nothing of a loop is left behind it but that its assertions held."""
    if loop.orelse or not all(isinstance(s, ast.Assert | ast.Assign) for s in loop.body):
        return False
    inside = {id(node) for node in ast.walk(loop)}
    made = {
        node.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    plain = all(
        isinstance(target, ast.Name)
        for statement in loop.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    )
    return plain and not any(
        isinstance(node, ast.Name) and node.id in made and id(node) not in inside
        for node in ast.walk(around)
    )
