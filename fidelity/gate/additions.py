"""Statements that only add to a test file: what was there runs as it did."""

import ast
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from fidelity.gate.meaning import Function, is_builtin, names_bound, names_read

_SEEN_BY_PYTEST = ("pytest_", "test", "setup", "teardown", "__", "pytestmark", "collect_ignore")
_TEST_MARKS = ("pytest.mark.", "given", "settings", "example", "hypothesis.", "mark.")
_ACTS = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def adds_only(node: ast.stmt, kind: str, taken: AbstractSet[str], *, counts: bool) -> bool:
    """Tell whether a new statement can only make a file ask for more.

    Args:
        node: the statement; imports are compared apart.
        kind: what it stands in: "module", "tests" (a class of tests), "class" or "function".
        taken: names that the file and that class bound before.
        counts: False where a failing assertion would go unnoticed, or change the way out.
    """
    if kind in {"function", "class"}:
        return kind == "function" and counts and _asserts(node)
    new_names = names_bound([node])
    if new_names & taken or any(map(is_builtin, new_names)):
        return False
    if isinstance(node, Function) and node.name.startswith("test"):
        return _is_own_test(node)
    seen = any(name.startswith(_SEEN_BY_PYTEST) for name in new_names)
    return kind == "module" and _is_helper(node) and not seen


def import_changes(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield imports at the top of a file that are gone while used, or that bind a name anew."""
    was, now = _imports(old), _imports(new)
    taken = names_bound([*old])
    read_then, read_now = names_read(ast.Module([*old], [])), names_read(ast.Module([*new], []))
    for text, (name, _) in was.items():
        if text not in now and not (name in read_then and name not in read_now):
            yield f"gone: `{text}`", 1
    for text, (name, line) in now.items():
        if text not in was and (name in taken or name == "*" or is_builtin(name)):
            yield f"new: `{text}`", line


def _imports(body: Sequence[ast.stmt]) -> dict[str, tuple[str, int]]:
    """Map each import, alone, to the name that it binds and its line."""
    found = {}
    for node in body:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            alone = (
                ast.ImportFrom(node.module, [alias], node.level)
                if isinstance(node, ast.ImportFrom)
                else ast.Import([alias])
            )
            name = (alias.asname or alias.name).partition(".")[0]
            found[ast.unparse(alone)] = (name, node.lineno)
    return found


def _asserts(node: ast.stmt) -> bool:
    if any(isinstance(inner, _ACTS) for inner in ast.walk(node)):
        return False
    if isinstance(node, ast.Assert):
        return True
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    return ast.unparse(node.value.func).rpartition(".")[2].startswith("assert")


def _is_own_test(node: Function) -> bool:
    """Tell whether a new test leaves everything else as it was."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    if not all(mark.startswith(_TEST_MARKS) for mark in marks):
        return False
    return not any(_reaches_out(inner) for inner in ast.walk(node))


def _reaches_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Global | ast.Nonlocal):
        return True
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Name) and node.id in {"setattr", "delattr", "exec", "eval"}


def _is_helper(node: ast.stmt) -> bool:
    """Tell whether a statement defines something that nobody uses yet, and does nothing else."""
    if isinstance(node, Function):
        return not node.decorator_list and not any(map(_runs, _now(node)))
    if isinstance(node, ast.Assign):
        return all(isinstance(t, ast.Name) for t in node.targets) and not _runs(node.value)
    return False


def _now(node: Function) -> Iterator[ast.expr]:
    """Yield what a definition evaluates at once."""
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default is not None)


def _runs(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Call | ast.NamedExpr) for inner in ast.walk(node))
